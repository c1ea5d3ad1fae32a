"""Gradients of the release before: what the lead takes, and what it says of them."""

from __future__ import annotations

from job_driver import Driver

from grpc_ps.psserver.lead.steering import Change


def test_a_gradient_of_the_release_before_is_applied_and_one_staler() -> None:
    driver = Driver(shards=2)
    one, other = driver.open(2)
    driver.push(one)
    driver.push(other)
    driver.push(one, base_step=0)
    assert driver.job.step == 3
    assert (one.outcomes, one.staleness) == ({"APPLIED": 2}, 2)
    driver.push(one, base_step=1)
    assert (one.outcomes, one.staleness, one.max_staleness) == ({"APPLIED": 3}, 2, 2)


def test_one_of_an_older_release_is_refused() -> None:
    driver = Driver()
    (one,) = driver.open()
    driver.push(one)
    driver.push(one)
    driver.push(one, base_step=0)
    assert driver.job.members.get(one.worker, one.incarnation) is None
    assert driver.job.step == 2


def test_the_first_push_of_a_life_has_no_release_before() -> None:
    driver = Driver()
    (one,) = driver.open()
    for _ in range(3):
        driver.push(one)
    newcomer = driver.join(2)
    driver.job.ask(newcomer.worker, newcomer.incarnation, 0, driver.now)
    driver.push(newcomer, base_step=0)
    assert driver.job.members.get(newcomer.worker, newcomer.incarnation) is None


def test_a_push_of_the_release_before_may_be_for_the_present_batch_only() -> None:
    driver = Driver()
    (one,) = driver.open()
    driver.push(one)
    driver.push(one, base_step=0, batch=0)
    assert driver.job.members.get(one.worker, one.incarnation) is None


def test_rounds_find_it_late_in_the_middle_of_the_push_or_when_it_is_whole() -> None:
    driver = Driver(max_workers=2)
    one, other = driver.open(2)
    driver.push(one)
    driver.push(other)
    driver.job.change(Change(mode="sync", workers=2, backup=0), driver.now)
    driver.job.begun(driver.header(one, base_step=0), driver.now)
    driver.push(other, base_step=0)
    assert (one.outcomes, other.outcomes) == ({"APPLIED": 1, "LATE": 1},) * 2
    assert driver.job.step == 2
    driver.push(one)
    driver.push(other)
    assert driver.job.step == 3
    assert (one.staleness, other.staleness) == (0, 0)


def test_a_refused_push_leaves_its_release_to_the_next_one() -> None:
    driver = Driver()
    (one,) = driver.open()
    driver.push(one, non_finite="w")
    driver.push(one, base_step=0)
    assert one.outcomes == {"NON_FINITE": 1, "APPLIED": 1}
    assert (driver.job.step, one.staleness) == (1, 0)
