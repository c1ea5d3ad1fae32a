"""In rounds of workers that keep something back of their pushes, it is said which one computes what."""

from __future__ import annotations

from typing import Any

import pytest
from job_driver import Driver, W

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.resuming import Restored
from grpc_ps.psserver.lead.saving import TrainingState
from grpc_ps.psserver.lead.settings import complete

LOST = "worker 0 (host:1) was lost and worker 1 (host:2) was lost and nobody took its place for 6 s"
KEEPS_BACK: list[dict[str, Any]] = [{"compress": "topk:0.1"}, {"push_dtype": "bfloat16"}]


def opened(workers: int, asking: list[int], **settings: Any) -> tuple[Driver, list[Member]]:
    """A job whose workers ask for their first numbers in that order."""
    driver = Driver(mode="sync", workers=workers, **settings)
    members = [driver.join(1, 0)]
    driver.push(members[0], values=True)
    members += [driver.join(index + 1, index) for index in range(1, workers)]
    driver.news()
    for index in asking:
        driver.job.ask(index, members[index].incarnation, members[index].sequence, driver.now)
    return driver, members


def released(driver: Driver) -> dict[int, int]:
    """Numbers that have been released since, by worker."""
    answers = driver.answers(driver.news())
    return {answer.worker: answer.release.batch for answer in answers if answer.release is not None}


@pytest.mark.parametrize("settings", KEEPS_BACK)
def test_the_first_numbers_wait_for_all_and_go_out_in_order(settings: dict[str, Any]) -> None:
    driver, members = opened(3, [2, 0], **settings)
    assert released(driver) == {}
    driver.job.ask(1, members[1].incarnation, 0, driver.now)
    assert released(driver) == {0: 0, 1: 1, 2: 2}
    # In whatever order they push, the next ones are the same.
    for index in (1, 2, 0):
        driver.push(members[index])
    assert released(driver) == {0: 3, 1: 4, 2: 5}


@pytest.mark.parametrize("settings", [{}, {"pull_dtype": "bfloat16"}, {"compress": "topk:0.1", "backup": 1}])
def test_others_get_theirs_at_once(settings: dict[str, Any]) -> None:
    driver, _ = opened(2, [], **settings)
    # The opener is answered by itself.
    driver.job.ask(1, 2, 0, driver.now)
    assert released(driver)[1] in (0, 1)


def test_whoever_takes_the_place_of_a_lost_worker_gets_its_number_at_once() -> None:
    driver, members = opened(2, [0, 1], **KEEPS_BACK[0])
    assert released(driver) == {0: 0, 1: 1}
    driver.push(members[0])
    driver.job.leave(1, members[1].incarnation, driver.now)
    again = driver.join(9, 1)
    driver.job.ask(1, again.incarnation, 0, driver.now)
    assert released(driver) == {1: 1}
    driver.push(again)
    assert released(driver) == {0: 2, 1: 3}


def test_a_job_that_lost_a_worker_between_two_rounds_waits_for_the_next_one() -> None:
    driver, members = opened(2, [0, 1], **KEEPS_BACK[0])
    driver.push(members[0])
    driver.news()
    driver.push(members[1])
    # Both have the numbers of the next round; one of them goes before it has pushed.
    assert released(driver) == {0: 2, 1: 3}
    driver.job.leave(0, members[0].incarnation, driver.now)
    again = driver.join(9, 0)
    driver.job.ask(0, again.incarnation, 0, driver.now)
    assert released(driver) == {0: 2}


def test_a_job_that_goes_back_waits_for_all_before_the_first_number() -> None:
    """It has started long ago, and whoever is the first to come again must not take another one's number."""
    restored = Restored(
        name="step-00000004",
        run=7,
        model="linear",
        parameters=W,
        settings=complete({"mode": "sync", "workers": 2, "steps": 100, **KEEPS_BACK[0]}),
        opened={},
        opened_count=1,
        state=TrainingState(step=4, cursor=8, started=True),
        cold=False,
    )
    driver = Driver(restored=restored)
    for index in (1, 0):
        assert released(driver) == {}
        member = driver.join(index + 1, index)
        driver.job.ask(index, member.incarnation, 0, driver.now)
    assert released(driver) == {0: 8, 1: 9}


def missed(driver: Driver, member: Member) -> None:
    """Passes the time after which a round goes on without a worker; `member` beats."""
    for _ in range(2):
        driver.job.beat(member.worker, member.incarnation, driver.now)
        driver.job.tick(driver.now)
        driver.now += driver.job.limits.rejoin + 1
    driver.job.beat(member.worker, member.incarnation, driver.now)
    driver.job.tick(driver.now)


def test_rounds_go_on_without_a_worker_that_does_not_come_back() -> None:
    """With `min_workers`, also where it is missed before any number has been handed out."""
    driver, members = opened(2, [0, 1], min_workers=1, limits=Limits(rejoin=6), **KEEPS_BACK[0])
    driver.push(members[0])
    driver.push(members[1])
    assert released(driver) == {0: 0, 1: 1} | {0: 2, 1: 3}
    driver.job.leave(0, members[0].incarnation, driver.now)
    driver.push(members[1])
    assert released(driver) == {}
    missed(driver, members[1])
    assert [len(apply.pushes) for apply in driver.applies()] == [2, 1]
    missed(driver, members[1])
    assert released(driver) == {1: 2}
    driver.push(members[1])
    assert [len(apply.pushes) for apply in driver.applies()] == [2, 1, 1]


@pytest.mark.parametrize("settings", [{}, *KEEPS_BACK])
def test_a_job_that_has_lost_all_its_workers_ends(settings: dict[str, Any]) -> None:
    """However many had come for the last round that began."""
    driver, members = opened(2, [0, 1], limits=Limits(rejoin=6), **settings)
    for member in members:
        driver.push(member)
    for member in members:
        driver.job.leave(member.worker, member.incarnation, driver.now)
    for _ in range(3):
        driver.job.tick(driver.now)
        driver.now += 7
    assert driver.job.done == Done(4, LOST)
