"""Stale synchronous parallel: who may be how far ahead."""

from __future__ import annotations

from job_driver import Driver

from grpc_ps.psserver.lead.activity import activity
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.steering import Change


def run_ahead(driver: Driver, member: Member) -> int:
    """Pushes with one worker until it gets nothing more; returns how often."""
    pushes = 0
    while member.batch is not None and pushes < 50:
        driver.push(member)
        pushes += 1
    return pushes


def test_nobody_computes_more_than_the_bound_ahead_of_the_slowest() -> None:
    driver = Driver(max_staleness=2)
    fast, slow = driver.open(2)
    assert run_ahead(driver, fast) == 3
    assert (fast.progress, slow.progress) == (3, 0)
    assert driver.job.training is not None
    assert activity(fast, driver.job.training) == "ahead of the slowest"
    driver.push(slow)
    assert fast.batch is not None, "released as soon as the slowest has come one further"
    assert run_ahead(driver, fast) == 1


def test_without_a_bound_a_worker_runs_ahead() -> None:
    driver = Driver()
    fast, slow = driver.open(2)
    assert run_ahead(driver, fast) == 50
    driver.push(slow)
    assert (slow.staleness, slow.max_staleness, slow.tally.total_staleness) == (50, 50, 50)
    assert (fast.applied_step, slow.applied_step) == (50, 51)


def test_bound_zero_is_lock_step() -> None:
    driver = Driver(max_staleness=0)
    one, two = driver.open(2)
    assert run_ahead(driver, one) == 1
    assert run_ahead(driver, two) == 2, "it is the slowest at first, and then one ahead"


def test_the_loss_of_the_slowest_frees_the_others() -> None:
    driver = Driver(max_staleness=2)
    fast, slow = driver.open(2)
    run_ahead(driver, fast)
    driver.now = 5.0
    driver.job.beat(fast.worker, fast.incarnation, driver.now)
    driver.job.tick(driver.now)
    assert fast.batch is None
    driver.now = 11.0
    driver.job.beat(fast.worker, fast.incarnation, driver.now)
    driver.job.tick(driver.now)
    assert driver.job.members.get(slow.worker, slow.incarnation) is None
    assert fast.batch == 1, "the lost worker's number comes first"
    assert run_ahead(driver, fast) == 50


def test_a_newcomer_begins_at_the_slowest_and_holds_nobody_back() -> None:
    driver = Driver(max_staleness=2)
    one, two = driver.open(2)
    for _ in range(10):
        driver.push(one)
        driver.push(two)
    newcomer = driver.join(9)
    assert run_ahead(driver, one) == 3, "one that has not asked yet is not waited for"
    driver.job.ask(newcomer.worker, newcomer.incarnation, 0, driver.now)
    assert newcomer.progress == 10


def test_a_worker_without_data_holds_nobody_back() -> None:
    driver = Driver(max_staleness=1)
    one, two = driver.open(2)
    driver.job.ask(two.worker, two.incarnation, two.sequence, driver.now, out_of_data=True)
    assert run_ahead(driver, one) == 50


def test_a_bound_that_is_set_later_counts_from_then() -> None:
    driver = Driver()
    fast, slow = driver.open(2)
    run_ahead(driver, fast)
    driver.job.change(Change(max_staleness=1), driver.now)
    assert (fast.progress, slow.progress) == (0, 0)
    assert run_ahead(driver, fast) == 2
    driver.job.change(Change(max_staleness=-1), driver.now)
    assert run_ahead(driver, fast) == 50
