"""Backup workers: exactly N of a round, and what the others are told."""

from __future__ import annotations

from job_driver import Driver

from grpc_ps.psserver.lead.log import Dismiss
from grpc_ps.psserver.lead.steering import Change


def test_a_push_on_its_way_is_late_as_soon_as_its_round_closes() -> None:
    driver = Driver(shards=2, mode="sync", workers=2, backup=1)
    one, two, slow = driver.open(3)
    begun = driver.begin(slow)
    assert slow.last is None
    driver.push(one)
    driver.push(two)
    assert slow.last is not None
    assert (slow.last.sequence, slow.last.outcome, slow.last.staleness) == (1, "LATE", 1)
    answers = driver.answers(driver.news())[-3:]
    assert [answer.step for answer in answers] == [1, 1, 1]
    batches = [answer.release.batch for answer in answers if answer.release is not None]
    assert batches == [begun.batch, 3, 4], "new parameters for all, and its number is the first to be used"
    driver.job.whole(0, begun, "", driver.now)
    driver.job.whole(1, begun, "", driver.now)
    assert slow.outcomes == {"LATE": 1}, "the rest of it changes nothing"


def test_a_push_that_begins_after_its_round_is_late_at_once() -> None:
    driver = Driver(mode="sync", workers=1, backup=1)
    one, slow = driver.open(2)
    driver.push(one)
    driver.news()
    driver.begin(slow)
    assert slow.outcomes == {"LATE": 1}
    driver.push(slow)
    assert slow.outcomes == {"LATE": 1, "APPLIED": 1}


def test_a_push_of_the_open_round_only_begins() -> None:
    driver = Driver(mode="sync", workers=2, backup=1)
    one, two, three = driver.open(3)
    driver.begin(one)
    driver.begin(one)
    driver.push(three)
    assert driver.applies() == []
    driver.push(one)
    (apply,) = driver.applies()
    assert {push.worker for push, _ in apply.pushes} == {0, 2}
    assert two.outcomes == {}


def test_exactly_n_are_applied_however_many_are_whole() -> None:
    driver = Driver(mode="sync", workers=3, backup=1)
    one, two, three, _ = driver.open(4)
    driver.push(two)
    driver.push(one)
    driver.job.change(Change(workers=1, min_workers=1), driver.now)
    applies = driver.applies()
    assert [[push.worker for push, _ in apply.pushes] for apply in applies] == [[0]]
    assert (one.outcomes, two.outcomes) == ({"APPLIED": 1}, {"LATE": 1})
    assert three.outcomes == {}


def test_a_late_push_of_a_lost_worker_gives_its_number_back_and_its_part_is_dropped() -> None:
    driver = Driver(mode="sync", workers=3, backup=1, global_clip_norm=1.0)
    one, two, three, four = driver.open(4)
    for member in (one, two, three):
        driver.push(member, squares=((0, 1.0),))
    batch = four.batch
    driver.push(four, squares=((0, 1.0),))
    driver.job.leave(four.worker, four.incarnation, driver.now)
    driver.news()
    assert driver.job.training is not None
    reduce = next(position for position, entry in driver.job.log.after(0) if type(entry).__name__ == "Reduce")
    driver.job.reduced(0, reduce, ((0, 9.0),), driver.now)
    entries = driver.news()
    (dismiss,) = [entry for entry in entries if isinstance(entry, Dismiss)]
    assert (dismiss.worker, dismiss.incarnation, dismiss.keep) == (four.worker, four.incarnation, 0)
    releases = [answer.release.batch for answer in driver.answers(entries) if answer.release is not None]
    assert min(releases) == batch


def test_workers_beyond_n_and_k_are_spare() -> None:
    driver = Driver(mode="sync", workers=3)
    one, two, three = driver.open(3)
    driver.job.change(Change(workers=2), driver.now)
    driver.push(one)
    driver.push(two)
    driver.push(three)
    assert three.outcomes == {"LATE": 1}
    assert three.batch is None
    driver.job.leave(one.worker, one.incarnation, driver.now)
    assert three.batch is not None
