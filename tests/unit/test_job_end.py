"""How workers, shards and jobs end, event by event, without network or clock."""

from __future__ import annotations

import pytest
from job_driver import Driver

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Dismiss, Done, Save, Stop
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.saving import SavePlan


def test_steps_is_a_hard_limit() -> None:
    driver = Driver(steps=3)
    one, two = driver.open(2)
    driver.push(one)
    driver.push(two)
    driver.push(one)
    assert driver.job.step == 3
    driver.news()
    driver.push(two)
    (answer,) = driver.answers(driver.news())
    assert answer.result is not None
    assert answer.result.outcome == "DONE"
    assert answer.done is not None
    assert (driver.job.step, len(driver.applies())) == (3, 3)


def test_sync_waits_for_all_workers_before_it_starts() -> None:
    driver = Driver(mode="sync", workers=2)
    driver.open(1)
    assert all(answer.release is None for answer in driver.answers(driver.news()))
    assert driver.job.waiting_for() == "workers: 1 of 2 have joined"
    driver.now = 301
    for member in driver.job.members:
        member.last_beat = driver.now
    driver.job.tick(driver.now)
    assert driver.job.done is None, "the wait is counted from the first tick that sees it"
    driver.now = 602
    for member in driver.job.members:
        member.last_beat = driver.now
    driver.job.tick(driver.now)
    assert driver.job.done is not None
    assert driver.job.done.exit_code == 4
    assert "1 of 2 have joined" in driver.job.done.reason


def test_a_lost_worker_gives_its_number_back() -> None:
    driver = Driver()
    _one, two = driver.open(2)
    driver.now = 5.0
    driver.job.beat(0, 1, driver.now)
    driver.now = 11.0
    driver.job.tick(driver.now)
    assert [member.worker for member in driver.job.members] == [0]
    assert Dismiss(1, 2, "FENCED", "worker 1 lost its lease: no heartbeat for 10 s", 0) in driver.news()
    newcomer = driver.join(9)
    driver.job.ask(newcomer.worker, newcomer.incarnation, 0, driver.now)
    assert (newcomer.batch, newcomer.incarnation) == (two.batch, 3)


def test_a_sync_job_ends_when_nobody_replaces_a_lost_worker() -> None:
    driver = Driver(mode="sync", workers=2, limits=Limits(rejoin=6))
    one, two = driver.open(2)
    driver.push(one)
    driver.job.leave(1, two.incarnation, driver.now)
    driver.now = 5.0
    driver.job.beat(0, one.incarnation, driver.now)
    driver.job.tick(driver.now)
    assert driver.job.done is None
    driver.now = 6.5
    driver.job.tick(driver.now)
    assert driver.job.done is not None
    assert driver.job.done.exit_code == 4
    assert "worker 1 (host:2)" in driver.job.done.reason


def test_a_push_for_another_step_or_batch_ends_that_worker() -> None:
    driver = Driver()
    (member,) = driver.open()
    driver.news()
    driver.push(member, base_step=5)
    (gone,) = driver.news()
    assert isinstance(gone, Dismiss)
    assert gone.reason == "INVALID_PUSH"
    assert "at step 5; it holds batch 0 at step 0" in gone.detail
    assert driver.applies() == []


def test_a_shard_that_comes_back_empty_ends_the_job() -> None:
    driver = Driver(shards=2)
    driver.open()
    driver.job.shards.disconnect(1, 101, driver.now)
    with pytest.raises(Refusal, match="shard 1 lost its state and no checkpoint is configured"):
        driver.job.attendance.follow(1, 2, 999, "s1", driver.now)
    assert driver.job.done is not None
    assert driver.job.done.exit_code == 4


def test_a_shard_that_comes_back_as_it_was_goes_on() -> None:
    driver = Driver(shards=2)
    (member,) = driver.open()
    driver.job.shards.disconnect(1, 101, driver.now)
    driver.job.attendance.follow(1, 2, 101, "s1", driver.now)
    driver.push(member)
    assert driver.job.step == 1


def test_a_shard_that_stays_away_ends_the_job() -> None:
    driver = Driver(shards=2)
    (member,) = driver.open()
    driver.job.shards.disconnect(1, 101, 0.0)
    driver.now = 10.5
    driver.job.beat(0, member.incarnation, driver.now)
    driver.job.tick(driver.now)
    assert driver.job.done is not None
    assert "shard 1 (s1) has been gone for 10 s" in driver.job.done.reason


def test_an_overflowing_result_ends_the_job_with_the_parameter() -> None:
    driver = Driver()
    driver.open()
    driver.job.overflow("w", 4, driver.now)
    assert driver.job.done is not None
    assert driver.job.done.exit_code == 5
    assert "parameter 'w'" in driver.job.done.reason


def test_the_end_is_told_to_everybody_before_the_log_stops() -> None:
    driver = Driver(steps=1)
    one, two = driver.open(2)
    driver.news()
    driver.push(one)
    entries = driver.news()
    assert isinstance(entries[-1], Stop)
    assert [answer.done is not None for answer in driver.answers(entries)] == [True, True]
    driver.job.leave(0, one.incarnation, driver.now)
    assert not driver.job.finished()
    driver.job.leave(1, two.incarnation, driver.now)
    assert driver.job.finished()


def test_one_live_worker_holds_the_lease_to_evaluate() -> None:
    driver = Driver()
    one, two = driver.open(2)
    assert driver.job.evaluation.holder == one.incarnation
    driver.job.leave(0, one.incarnation, driver.now)
    assert driver.job.evaluation.holder == two.incarnation


def test_initial_values_that_come_after_the_end_are_told_so() -> None:
    driver = Driver()
    opener = driver.join(1)
    driver.job.stop(Done(0, "stopped on request"), driver.now)
    driver.push(opener, values=True)
    assert opener.last is not None
    assert opener.last.outcome == "DONE"
    assert driver.answers(driver.news())[-1].done == Done(0, "stopped on request")


def test_a_live_worker_that_has_not_asked_yet_is_not_taken_for_lost() -> None:
    driver = Driver(mode="sync", workers=2)
    one = driver.join(1)
    driver.push(one, values=True)
    two = driver.join(2)
    driver.job.ask(one.worker, one.incarnation, one.sequence, driver.now)
    for _ in range(20):
        driver.now += 9.0
        for member in (one, two):
            driver.job.beat(member.worker, member.incarnation, driver.now)
        driver.job.tick(driver.now)
    assert driver.job.done is None
    driver.job.ask(two.worker, two.incarnation, 0, driver.now)
    assert two.batch == 1


def test_the_worker_that_is_missing_is_named_not_the_last_that_was_lost() -> None:
    driver = Driver(mode="sync", workers=3)
    one, two, three = driver.open(3)
    driver.job.leave(one.worker, one.incarnation, driver.now)
    driver.job.leave(two.worker, two.incarnation, driver.now)
    assert driver.job.waiting_for() == "a replacement of worker 0 (host:1), worker 1 (host:2)"
    back = driver.join(9, index=1)
    driver.job.ask(back.worker, back.incarnation, 0, driver.now)
    assert driver.job.waiting_for() == "a replacement of worker 0 (host:1)"
    driver.now += driver.job.limits.rejoin + 1
    for member in (back, three):
        driver.job.beat(member.worker, member.incarnation, driver.now)
    driver.job.tick(driver.now)
    assert driver.job.done == Done(4, "worker 0 (host:1) was lost and nobody took its place for 60 s")


def test_a_newcomer_for_the_index_of_a_whole_push_does_not_hide_that_another_is_missing() -> None:
    driver = Driver(mode="sync", workers=2)
    one, two = driver.open(2)
    driver.push(one)
    driver.job.leave(one.worker, one.incarnation, driver.now)
    driver.job.leave(two.worker, two.incarnation, driver.now)
    back = driver.join(9, index=0)
    driver.job.ask(back.worker, back.incarnation, 0, driver.now)
    assert back.batch is None
    assert driver.job.waiting_for() == "a replacement of worker 1 (host:2)"


def test_newcomers_that_ask_no_more_are_forgotten() -> None:
    driver = Driver()
    (holder,) = driver.open()
    for nonce in range(100, 200):
        assert driver.try_join(nonce, index=0).state == "WAITING"
    driver.now = 9.0
    driver.job.beat(holder.worker, holder.incarnation, driver.now)
    driver.now = 11.0
    driver.job.tick(driver.now)
    assert driver.job.members._askers == {}


@pytest.mark.parametrize("done", [Done(), Done(4, "lost")])
def test_the_end_of_a_job_of_the_queue_is_not_the_clusters(done: Done) -> None:
    driver = Driver(queued=True, keep_alive=True)
    (member,) = open_queued(driver)
    driver.job.stop(done, driver.now)
    driver.job.leave(member.worker, member.incarnation, driver.now)
    assert (driver.job.done, driver.job.finished(), driver.job.is_kept) == (done, False, False)
    driver.job.keep_alive = False
    assert driver.job.finished(), "somebody has told the cluster to end"


def open_queued(driver: Driver) -> list[Member]:
    member = driver.join(1, run=7)
    driver.push(member, values=True)
    return [member]


def test_only_its_own_workers_open_a_job_of_the_queue() -> None:
    driver = Driver(queued=True, keep_alive=True)
    stranger = driver.try_join(1)
    assert (stranger.state, stranger.waiting_for) == (
        "WAITING",
        "a worker of the job that was submitted to open it",
    )
    with pytest.raises(Refusal, match="WRONG_RUN"):
        driver.try_join(2, run=8)
    assert driver.job.phase == "EMPTY"
    open_queued(driver)
    assert driver.try_join(1).state == "MEMBER", "whoever agrees may help then"


def test_nobody_goes_on_with_a_job_of_the_queue_that_is_done() -> None:
    driver = Driver(queued=True, keep_alive=True, steps=5)
    open_queued(driver)
    driver.job.stop(Done(), driver.now)
    with pytest.raises(Refusal, match="MISMATCH: steps"):
        driver.try_join(3, stated={"steps": 9})
    assert driver.try_join(3).state == "DONE"


def test_a_follower_that_comes_back_empty_costs_a_job_of_the_queue_and_is_there_for_the_next() -> None:
    driver = Driver(shards=2, queued=True, keep_alive=True)
    open_queued(driver)
    driver.job.shards.disconnect(1, 101, driver.now)
    driver.job.attendance.follow(1, 2, 555, "s1", driver.now)
    assert driver.job.done == Done(4, "shard 1 lost its state and no checkpoint is configured")
    assert driver.job.shards.missing() == []


@pytest.mark.parametrize("told", ["shard", "job"])
def test_whoever_is_told_to_end_waits_less_for_what_workers_keep(told: str) -> None:
    limits = Limits(residuals=30, last_residuals=1.5)
    driver = Driver(shards=2, plan=SavePlan(steps=2), limits=limits)
    (member,) = driver.open()
    driver.commit()
    driver.push(member)
    if told == "shard":
        driver.job.attendance.leaving(1, driver.now)
    else:
        driver.job.stop(Done(4, "told to end by a signal"), driver.now, save=True, hurried=True)
    waits = [(entry.step, entry.patience_ms) for entry in driver.news() if isinstance(entry, Save)]
    assert waits == [(0, 30_000), (1, 1_500)]


def test_an_end_of_its_own_is_in_no_hurry() -> None:
    driver = Driver(plan=SavePlan(steps=2), steps=1, limits=Limits(residuals=30, last_residuals=1.5))
    (member,) = driver.open()
    driver.commit()
    driver.push(member)
    assert [entry.patience_ms for entry in driver.news() if isinstance(entry, Save)] == [30_000, 30_000]
