"""Where a job ends, as a worker expects it from the settings: as the lead's own decisions end it."""

from __future__ import annotations

from typing import Any

import pytest
from job_driver import Driver

from grpc_ps.psserver.lead.membership import Member
from grpc_ps.worker.settings import target_step


def trained(examples: int, count: int, **presets: Any) -> tuple[int, int]:
    """The global step at which the lead ends a job of so many workers, and the one that a worker expects."""
    driver = Driver(**presets)
    data = {"stated": {"examples": examples}, "defaults": {}}
    members = [driver.join(1, **data)]
    driver.push(members[0], values=True)
    members += [driver.join(nonce, **data) for nonce in range(2, count + 1)]
    for member in members:
        driver.job.ask(member.worker, member.incarnation, member.sequence, driver.now)
    assert driver.job.definition is not None
    expected = target_step(driver.job.definition.settings)
    for _ in range(1000):
        for member in members:
            if driver.job.done is not None:
                assert driver.job.done.exit_code == 0
                return driver.job.step, expected
            one_step(driver, member)
    raise AssertionError("the job did not end")


def one_step(driver: Driver, member: Member) -> None:
    if member.batch is not None and not member.pending:
        driver.push(member)
    if member.batch is None and not member.waiting and driver.job.done is None:
        driver.job.ask(member.worker, member.incarnation, member.sequence, driver.now)


@pytest.mark.parametrize(
    ("workers", "backup", "step"),
    # 11 batches an epoch, 22 in all: without backup workers no round has batches of both epochs.
    [
        (1, 0, 22),
        (2, 0, 12),
        (3, 0, 8),
        (4, 0, 6),
        (11, 0, 2),
        (12, 0, 2),
        (2, 1, 11),
        (3, 2, 8),
        (4, 1, 6),
        (12, 1, 2),
    ],
)
def test_rounds_of_two_epochs(workers: int, backup: int, step: int) -> None:
    settings = {"mode": "sync", "workers": workers, "backup": backup, "batch_size": 10, "epochs": 2}
    assert trained(101, workers + backup, **settings) == (step, step)


@pytest.mark.parametrize("examples", [1, 10, 39, 40, 41])
@pytest.mark.parametrize("epochs", [1, 3])
@pytest.mark.parametrize(("workers", "backup"), [(1, 0), (3, 0), (3, 1), (4, 3)])
def test_a_worker_expects_what_the_lead_does(examples: int, epochs: int, workers: int, backup: int) -> None:
    settings = {"mode": "sync", "workers": workers, "backup": backup, "batch_size": 4, "epochs": epochs}
    step, expected = trained(examples, workers + backup, **settings)
    assert expected == step


@pytest.mark.parametrize("workers", [1, 3])
def test_without_rounds_each_batch_is_a_step(workers: int) -> None:
    assert trained(101, workers, mode="async", workers=2, batch_size=10, epochs=2) == (22, 22)


@pytest.mark.parametrize(("steps", "step"), [(5, 5), (12, 12), (30, 12)])
def test_steps_and_epochs_end_a_job_whichever_come_first(steps: int, step: int) -> None:
    assert trained(101, 2, mode="sync", workers=2, batch_size=10, epochs=2, steps=steps) == (step, step)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_steps_alone(mode: str) -> None:
    assert trained(0, 2, mode=mode, workers=2, steps=7) == (7, 7)


@pytest.mark.parametrize(
    "settings",
    [{}, {"steps": 0, "epochs": 0, "examples": 101, "batch_size": 10, "mode": "sync", "workers": 2, "backup": 0}],
)
def test_a_job_that_ends_otherwise_or_has_ended_tells_no_last_step(settings: dict[str, Any]) -> None:
    assert target_step(settings) == 0
