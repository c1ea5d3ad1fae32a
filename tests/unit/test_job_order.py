"""In rounds of workers that keep something back of their pushes, it is said which one computes what."""

from __future__ import annotations

from typing import Any

import pytest
from job_driver import Driver

from grpc_ps.psserver.lead.membership import Member

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
