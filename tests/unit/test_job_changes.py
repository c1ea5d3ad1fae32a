"""A job that is changed while it runs, ended by an evaluation, or by data that is used up."""

from __future__ import annotations

from typing import Any

import pytest
from job_driver import Driver

from grpc_ps.psserver.lead.activity import activity
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.steering import Change


def test_from_async_to_sync_gradients_of_older_parameters_are_late() -> None:
    driver = Driver(workers=2)
    one, two = driver.open(2)
    driver.push(one)
    driver.job.change(Change(mode="sync"), driver.now)
    driver.push(two)
    assert two.outcomes == {"LATE": 1}
    driver.push(one)
    assert driver.job.step == 1, "a round of two now"
    driver.push(two)
    assert driver.job.step == 2


def test_from_sync_to_async_what_is_whole_is_applied_in_order_of_batches() -> None:
    driver = Driver(mode="sync", workers=3)
    one, two, three = driver.open(3)
    driver.push(three)
    driver.push(one)
    driver.job.change(Change(mode="async"), driver.now)
    assert [[push.worker for push, _ in apply.pushes] for apply in driver.applies()] == [[0], [2]]
    driver.push(two)
    assert (driver.job.step, two.staleness) == (3, 2)


def test_a_pause_lets_everybody_finish_and_gives_nobody_more() -> None:
    driver = Driver()
    one, two = driver.open(2)
    driver.job.change(Change(paused=True), driver.now)
    driver.push(one)
    driver.push(two)
    assert (driver.job.step, one.batch, two.batch) == (2, None, None)
    answers = driver.answers(driver.news())
    assert answers[-1].result is not None
    assert answers[-1].release is None
    assert driver.job.training is not None
    assert activity(one, driver.job.training) == "paused"
    driver.job.change(Change(paused=False), driver.now)
    assert (one.batch, two.batch) == (2, 3)


def test_a_pause_does_not_start_the_wait_for_lost_workers() -> None:
    driver = Driver(mode="sync", workers=2)
    one, _ = driver.open(2)
    driver.job.change(Change(paused=True), driver.now)
    driver.job.leave(one.worker, one.incarnation, driver.now)
    for _ in range(20):
        driver.now += 9
        for member in driver.job.members:
            driver.job.beat(member.worker, member.incarnation, driver.now)
        driver.job.tick(driver.now)
    assert driver.job.done is None
    driver.job.change(Change(paused=False), driver.now)
    assert driver.job.waiting_for() == "a replacement of worker 0 (host:1)"


def test_the_factor_multiplies_the_rate_of_the_schedule() -> None:
    driver = Driver(learning_rate=0.5, schedule="staircase:2:0.5")
    (member,) = driver.open()
    for _ in range(3):
        driver.push(member)
    driver.job.change(Change(learning_rate_factor=0.1), driver.now)
    driver.push(member)
    assert [apply.learning_rate for apply in driver.applies()] == pytest.approx([0.5, 0.5, 0.25, 0.025])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (Change(mode="fast"), "mode 'fast' must be one of async, sync"),
        (Change(workers=0), "workers 0 must be at least 1"),
        (Change(workers=3), "workers 3: the job has 2 now"),
        (Change(min_workers=3), "min_workers 3 is more than workers 2"),
        (Change(max_staleness=-2), "max_staleness -2 must be 0 or more"),
        (Change(learning_rate_factor=0.0), "learning_rate_factor 0.0 must be a number above 0 that leaves"),
        (Change(workers=1, learning_rate_factor=float("nan")), "learning_rate_factor nan"),
        (Change(learning_rate_factor=1e300), "learning_rate_factor 1e.300 must be a number above 0 that leaves"),
    ],
)
def test_what_is_not_possible_is_refused_whole(change: Change, message: str) -> None:
    driver = Driver(mode="sync", workers=2)
    driver.open(2)
    before = dict(driver.job.definition.settings) if driver.job.definition else {}
    with pytest.raises(Refusal, match=message) as caught:
        driver.job.change(change, driver.now)
    assert caught.value.reason == "MISMATCH"
    assert driver.job.definition is not None
    assert driver.job.definition.settings == before


def test_only_a_job_that_runs_can_be_changed() -> None:
    driver = Driver()
    with pytest.raises(Refusal, match="no job runs here"):
        driver.job.change(Change(paused=True), 0.0)
    driver.open()
    driver.job.stop(Done(), driver.now)
    with pytest.raises(Refusal, match="no job runs here"):
        driver.job.change(Change(paused=True), 0.0)


def test_a_worker_comes_back_with_its_first_command_line_after_a_change() -> None:
    driver = Driver()
    stated = {"mode": "sync", "workers": 2}
    one = driver.join(1, stated=stated)
    driver.push(one, values=True)
    two = driver.join(2, stated=stated)
    for member in (one, two):
        driver.job.ask(member.worker, member.incarnation, member.sequence, driver.now)
    driver.job.change(Change(workers=1), driver.now)
    driver.job.leave(two.worker, two.incarnation, driver.now)
    with pytest.raises(Refusal, match="workers: the job has 1, this worker has 3"):
        driver.try_join(3, stated={"workers": 3})
    driver.job.leave(one.worker, one.incarnation, driver.now)
    assert driver.join(4, stated=stated).worker == 0
    driver.job.leave(0, 3, driver.now)
    assert driver.join(5, stated={"workers": 1}).worker == 0


def out(driver: Driver, member: Any) -> None:
    driver.job.ask(member.worker, member.incarnation, member.sequence, driver.now, out_of_data=True)


def test_the_quorum_falls_with_workers_that_are_out_of_data() -> None:
    driver = Driver(mode="sync", workers=3)
    one, two, three = driver.open(3)
    out(driver, three)
    out(driver, three)
    driver.push(one)
    driver.push(two)
    out(driver, two)
    driver.push(one)
    assert [len(apply.pushes) for apply in driver.applies()] == [2, 1]
    assert [apply.pushes[0][1] for apply in driver.applies()] == [0.5, 1.0]
    out(driver, one)
    assert driver.job.done == Done(0, "all workers are out of data")


def test_a_lost_worker_with_data_is_awaited_though_the_others_have_none() -> None:
    driver = Driver(mode="sync", workers=2)
    one, two = driver.open(2)
    out(driver, one)
    driver.job.leave(two.worker, two.incarnation, driver.now)
    assert driver.job.done is None
    driver.job.tick(driver.now)
    driver.now += driver.job.limits.rejoin + 1
    driver.job.beat(one.worker, one.incarnation, driver.now)
    driver.job.tick(driver.now)
    assert driver.job.done is not None
    assert driver.job.done.exit_code == 4
    assert "worker 1 (host:2) was lost" in driver.job.done.reason


def test_async_ends_when_nobody_has_data() -> None:
    driver = Driver()
    one, two = driver.open(2)
    driver.push(one)
    out(driver, one)
    driver.push(two)
    out(driver, two)
    assert driver.job.done == Done(0, "all workers are out of data")
    assert driver.job.step == 2


def test_an_evaluation_that_is_good_enough_ends_the_job() -> None:
    driver = Driver(until="accuracy>=0.9")
    (member,) = driver.open()
    assert driver.job.definition is not None
    assert driver.job.definition.settings["eval_every"] == 100
    with pytest.raises(Refusal, match="worker 0 is not the one to report an evaluation of step 100"):
        driver.job.report(0, 1, 100, {"accuracy": 0.99}, driver.now)
    assert driver.job.training is not None
    driver.job.training.step = 300
    driver.job.report(0, 1, 100, {"accuracy": 0.89, "loss": 0.1}, driver.now)
    driver.job.report(0, 1, 50, {"accuracy": 0.99}, driver.now)
    driver.job.report(0, 1, 200, {"loss": 0.1}, driver.now)
    assert driver.job.done is None
    assert (driver.job.evaluation.step, driver.job.evaluation.metrics) == (200, {"loss": 0.1})
    driver.job.report(0, 1, 300, {"accuracy": 0.9}, driver.now)
    assert driver.job.done == Done(0, "accuracy 0.9 >= 0.9 at global step 300")
    with pytest.raises(Refusal, match="no member"):
        driver.job.report(0, 2, 400, {"accuracy": 0.9}, driver.now)
    assert member.last is not None


@pytest.mark.parametrize("text", ["accuracy", "accuracy=0.9", "accuracy>=x", "accuracy>=nan", ">=1", "a>=1 b"])
def test_what_is_no_end_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match=r"until .* must be METRIC>=NUMBER or METRIC<=NUMBER"):
        Driver(until=text)


def test_a_loss_ends_a_job_from_above() -> None:
    driver = Driver(until="loss<=0.5", eval_every=10)
    driver.open()
    assert driver.job.training is not None
    driver.job.training.step = 20
    driver.job.report(0, 1, 10, {"loss": 0.51}, driver.now)
    assert driver.job.done is None
    driver.job.report(0, 1, 15, {"loss": float("-inf")}, driver.now)
    assert driver.job.done is None
    driver.job.report(0, 1, 20, {"loss": 0.5}, driver.now)
    assert driver.job.done == Done(0, "loss 0.5 <= 0.5 at global step 20")


def test_absent_backup_workers_are_not_waited_for_when_data_is_used_up() -> None:
    driver = Driver(mode="sync", workers=2, backup=1)
    one, two = driver.open(2)
    out(driver, one)
    driver.push(two)
    assert driver.job.step == 1


def test_a_round_with_leases_of_several_epochs_is_not_cut_to_one_of_them() -> None:
    driver = Driver(mode="sync", workers=4, backup=2, examples=3, batch_size=1, epochs=4)
    members = driver.open(6)
    assert [member.batch for member in members] == [0, 1, 2, 3, 4, 5]
    for member in members[1:4]:
        driver.push(member)
    driver.job.leave(members[0].worker, members[0].incarnation, driver.now)
    driver.job.change(Change(backup=0), driver.now)
    newcomer = driver.join(9)
    driver.job.ask(newcomer.worker, newcomer.incarnation, 0, driver.now)
    assert driver.applies() == [], "not a round of the newcomer's number's epoch alone"
    assert newcomer.batch == 0
    driver.push(newcomer)
    (apply,) = driver.applies()
    assert [push.worker for push, _ in apply.pushes] == [0, 1, 2, 3]
