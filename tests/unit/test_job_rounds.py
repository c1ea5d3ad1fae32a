"""What becomes of pushes, event by event, without network or clock."""

from __future__ import annotations

import pytest
from job_driver import Driver

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Answer, Apply, Dismiss
from grpc_ps.psserver.lead.refusal import Refusal


def test_async_applies_every_push_once_and_answers_it_with_new_parameters() -> None:
    driver = Driver()
    one, two = driver.open(2)
    driver.news()
    push = driver.push(one)
    apply, answer = driver.news()
    assert apply == Apply(1, ((push.id, 1.0),), 0.01)
    assert isinstance(answer, Answer)
    assert answer.result is not None
    assert (answer.worker, answer.step, answer.result.outcome, answer.result.staleness) == (0, 1, "APPLIED", 0)
    assert answer.release is not None
    assert answer.release.batch == 2
    driver.push(two)
    assert driver.answers(driver.news())[0].result is not None
    assert two.staleness == 1


def test_a_push_counts_only_when_it_is_whole_on_every_shard() -> None:
    driver = Driver(shards=2)
    (member,) = driver.open()
    push = driver.push(member, shards=range(1))
    assert driver.applies() == []
    driver.job.whole(1, push, "", driver.now)
    assert [apply.step for apply in driver.applies()] == [1]


def test_a_repeated_push_is_not_applied_again_and_gets_its_own_outcome() -> None:
    driver = Driver()
    (member,) = driver.open()
    push = driver.push(member)
    driver.news()
    driver.job.whole(0, push, "", driver.now)
    assert driver.news() == []
    driver.job.ask(0, 1, push.id.sequence, driver.now)
    (answer,) = driver.answers(driver.news())
    assert answer.result is not None
    assert (answer.result.outcome, answer.result.repeated) == ("APPLIED", True)
    assert answer.release is not None
    assert answer.release.batch == 1, "the number that is leased already, not another one"
    assert driver.job.step == 1


def test_sync_round_has_one_gradient_of_each_worker_in_order_of_batches() -> None:
    driver = Driver(mode="sync", workers=2)
    one, two = driver.open(2)
    driver.news()
    second = driver.push(two, examples=2)
    assert driver.applies() == []
    first = driver.push(one, examples=10)
    (apply,) = driver.applies()
    assert apply.pushes == ((first.id, pytest.approx(10 / 12, abs=1e-7)), (second.id, pytest.approx(2 / 12, abs=1e-7)))
    answers = driver.answers(driver.news())
    assert [(answer.worker, answer.step, answer.release is not None) for answer in answers] == [
        (0, 1, True),
        (1, 1, True),
    ]


def test_a_round_does_not_span_epochs() -> None:
    driver = Driver(mode="sync", workers=4, examples=101, batch_size=10, epochs=1)
    members = driver.open(4)
    while driver.job.done is None:
        for member in members:
            if member.batch is not None:
                driver.push(member)
    sizes = [len(apply.pushes) for apply in driver.applies()]
    assert sizes == [4, 4, 3]


def test_a_late_push_of_a_backup_worker_is_refused_and_its_number_handed_out_again() -> None:
    driver = Driver(mode="sync", workers=2, backup=1)
    one, two, three = driver.open(3)
    late_batch = three.batch
    driver.push(one)
    driver.push(two)
    driver.news()
    driver.push(three)
    (answer,) = driver.answers(driver.news())
    assert answer.result is not None
    assert (answer.result.outcome, answer.result.staleness) == ("LATE", 1)
    assert answer.release is not None
    assert answer.release.batch == late_batch
    assert len(driver.applies()) == 1


def test_a_push_that_is_whole_counts_although_its_worker_is_lost() -> None:
    driver = Driver(mode="sync", workers=2)
    one, two = driver.open(2)
    push = driver.push(one)
    driver.job.leave(0, one.incarnation, driver.now)
    gone = [entry for entry in driver.news() if isinstance(entry, Dismiss)]
    assert [entry.keep for entry in gone] == [push.id.sequence]
    driver.push(two)
    assert [len(apply.pushes) for apply in driver.applies()] == [2]


def test_a_newcomer_whose_index_has_contributed_waits_for_the_next_round() -> None:
    driver = Driver(mode="sync", workers=2)
    one, two = driver.open(2)
    driver.push(one)
    driver.job.leave(0, one.incarnation, driver.now)
    newcomer = driver.join(9, index=0)
    driver.job.ask(0, newcomer.incarnation, 0, driver.now)
    assert newcomer.batch is None
    driver.push(two)
    assert newcomer.batch is not None
    assert newcomer.base_steps == [1]


def test_min_workers_lets_the_round_close_without_the_lost_one() -> None:
    driver = Driver(mode="sync", workers=2, min_workers=1, limits=Limits(rejoin=6))
    one, two = driver.open(2)
    driver.push(one)
    driver.job.leave(1, two.incarnation, driver.now)
    driver.now = 6.5
    driver.job.beat(0, one.incarnation, driver.now)
    driver.job.tick(driver.now)
    driver.job.tick(driver.now)
    assert driver.job.done is None
    assert [len(apply.pushes) for apply in driver.applies()] == [1]


def test_non_finite_is_refused_whole_and_its_number_retired() -> None:
    driver = Driver()
    (member,) = driver.open()
    driver.news()
    driver.push(member, non_finite="w")
    (answer,) = driver.answers(driver.news())
    assert answer.result is not None
    assert (answer.result.outcome, answer.result.parameter) == ("NON_FINITE", "w")
    assert (member.batch, driver.job.step) == (1, 0)


def test_readers_are_few_and_their_pins_end() -> None:
    driver = Driver()
    with pytest.raises(Refusal, match="NOT_OPEN"):
        driver.job.pins.add(1, driver.now)
    driver.open()
    for name in range(8):
        driver.job.pins.add(name, driver.now)
    with pytest.raises(Refusal, match="FULL"):
        driver.job.pins.add(8, driver.now, listed=1)
    with pytest.raises(Refusal, match="MISMATCH: --ps lists 2 shards, the job has 1"):
        driver.job.pins.add(8, driver.now, listed=2)
    driver.job.pins.drop(0, 3)
    driver.job.pins.add(8, driver.now)
    driver.now = 31.0
    driver.job.pins.add(9, driver.now)


def test_a_snapshot_counts_until_every_shard_has_let_go_of_it() -> None:
    driver = Driver(shards=2)
    driver.open()
    for name in range(8):
        driver.job.pins.add(name, driver.now)
        driver.job.pins.drop(0, name)
    with pytest.raises(Refusal, match="FULL"):
        driver.job.pins.add(8, driver.now)
    driver.job.pins.drop(1, 3)
    driver.job.pins.drop(1, 99)
    driver.job.pins.add(8, driver.now)
    assert len(driver.job.pins) == 8


def test_the_log_keeps_what_a_follower_has_not_acknowledged() -> None:
    driver = Driver(shards=2)
    (member,) = driver.open()
    driver.push(member)
    position = driver.job.log.position
    driver.job.log.trim(driver.job.shards.acknowledge(1, position - 1))
    assert [at for at, _ in driver.job.log.after(position - 1)] == [position]
    with pytest.raises(LookupError):
        list(driver.job.log.after(position - 2))


def test_a_push_computed_on_either_release_of_its_lease_is_taken() -> None:
    """A link that broke brings a second release of the same batch, perhaps of a later step; both are honest."""
    driver = Driver()
    one, two = driver.open(2)
    driver.push(two)
    driver.job.ask(0, one.incarnation, one.sequence, driver.now)
    assert set(one.base_steps) == {0, 1}
    driver.push(one, base_step=0)
    assert (driver.job.step, one.staleness) == (2, 1)
    assert one.base_steps == [2]


def test_an_opener_that_beats_but_sends_nothing_makes_room() -> None:
    driver = Driver(limits=Limits(start=60))
    opener = driver.join(1)
    for driver.now in (1.0, 30.0, 62.0):
        driver.job.beat(0, opener.incarnation, driver.now)
        driver.job.tick(driver.now)
    assert [entry.reason for entry in driver.news() if isinstance(entry, Dismiss)] == ["FENCED"]
    assert driver.try_join(2).state == "OPENER"


def test_an_epoch_whose_last_numbers_are_all_retired_gives_way_to_the_next() -> None:
    driver = Driver(mode="sync", workers=2, examples=2, batch_size=1, epochs=2)
    one, two = driver.open(2)
    driver.push(one, non_finite="w")
    driver.push(two, non_finite="w")
    assert (one.batch, two.batch) == (2, 3)
    driver.push(one)
    driver.push(two)
    assert driver.job.done is not None
    assert (driver.job.step, driver.job.done.exit_code) == (1, 0)
