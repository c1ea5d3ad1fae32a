"""How long whole pushes are held before their workers may go on."""

from __future__ import annotations

import pytest
from job_driver import Driver

from grpc_ps.psserver.lead.steering import Change


def test_the_fast_worker_of_a_round_is_held_by_the_slow_one() -> None:
    driver = Driver(mode="sync", workers=2, backup=0)
    fast, slow = driver.open(2)
    for start in (10.0, 20.0, 30.0):
        driver.now = start
        driver.push(fast)
        driver.now = start + 2.5
        driver.push(slow)
    assert driver.job.step == 3
    # The first round does not count: who is in it may still be starting.
    assert (fast.held_seconds, slow.held_seconds) == (5.0, 0.0)


def test_a_worker_that_is_too_far_ahead_is_held_though_its_push_is_applied_at_once() -> None:
    driver = Driver(max_staleness=0)
    ahead, behind = driver.open(2)
    driver.push(ahead)
    driver.push(behind)
    driver.now = 5.0
    driver.push(ahead)
    assert driver.job.step == 3
    assert ahead.batch is None
    driver.now = 9.0
    driver.push(behind)
    assert (ahead.held_seconds, behind.held_seconds) == (4.0, 0.0)


def test_asynchronous_pushes_are_not_held() -> None:
    driver = Driver(shards=2)
    (member,) = driver.open()
    for now in (1.0, 2.0, 3.0):
        driver.now = now
        driver.push(member)
    assert member.held_seconds == 0.0


@pytest.mark.parametrize("non_finite", ["", "w"])
def test_a_pause_holds_whoever_is_answered(non_finite: str) -> None:
    driver = Driver()
    (member,) = driver.open()
    driver.push(member)
    driver.job.change(Change(paused=True), driver.now)
    driver.now = 2.0
    driver.push(member, non_finite=non_finite)
    driver.now = 5.0
    driver.job.change(Change(paused=False), driver.now)
    assert member.held_seconds == 3.0
