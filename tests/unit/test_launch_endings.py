"""What the end of a process means to the launcher at the end of a job."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from pathlib import Path

import pytest
from fake_launch import JOINED, SHARD, Acting, make_plan, run

from grpc_ps.client.launch import LaunchPlan
from grpc_ps.client.processes import Line

# The job is over when both workers have come; one of them sees its shard go and does something else then.
SHORT = SHARD.replace("    peer.recv(1)", "    sys.exit()")
OTHER = (
    "import os, sys; sys.excepthook = lambda *_: os._exit(4)  # started again, it finds no shard"
    + JOINED
    + """
if flags.index == 0: sys.exit(0)
peers[0].recv(1)
"""
)


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., LaunchPlan]:
    monkeypatch.chdir(tmp_path)
    return functools.partial(make_plan, tmp_path)


@pytest.mark.parametrize("max_restarts", [0, 3])
@pytest.mark.parametrize(
    ("then", "code"),
    [("sys.exit(4)", 4), ("print('waiting', flush=True); signal.pause()", 143)],
    ids=["loses its shard", "waits"],
)
def test_when_the_job_is_over_a_worker_need_not_end_well(
    plan: Callable[..., LaunchPlan], then: str, code: int, max_restarts: int
) -> None:
    wait = {"settle": 30.0, "drain_timeout": 600.0, **({"grace": 0.3} if code == 143 else {})}
    outcome, seen = run(plan(shard=SHORT, worker=OTHER + then, workers=2, max_restarts=max_restarts, **wait))
    assert (outcome.exit_code, outcome.reason) == (0, "")
    # Who waits is told to end, and killed if the machine has no time for it until the grace time is over.
    assert seen.codes()["worker 1"] in (code, *((137,) if code == 143 else ()), *((143, 137) if max_restarts else ()))


def test_a_worker_that_is_killed_when_the_job_is_over(plan: Callable[..., LaunchPlan]) -> None:
    """It is killed once the shard's end was seen, as the launcher does not look into the future."""
    stays = OTHER + "print('stays', flush=True); signal.pause()"

    seen = Acting(
        lambda: seen.lives("ps 0") and "stays" in seen.lines("worker 1"),
        lambda: next(
            event.child.signal(signal.SIGKILL)
            for event in seen.events
            if isinstance(event, Line) and event.text == "stays"
        ),
    )
    outcome, _ = run(plan(shard=SHORT, worker=stays, workers=2, max_restarts=2), seen)
    assert (outcome.exit_code, outcome.reason, outcome.restarts) == (0, "", 0)
    assert seen.codes()["worker 1"] == 137


def test_a_bug_is_told_even_when_the_job_is_over(plan: Callable[..., LaunchPlan], tmp_path: Path) -> None:
    late = OTHER + "import time\nwhile not os.path.exists('over'): time.sleep(0.01)\nsys.exit(1)"

    seen = Acting(lambda: seen.lives("ps 0"), (tmp_path / "over").touch)
    outcome, _ = run(plan(shard=SHORT, worker=late, workers=2, max_restarts=2), seen)
    assert (outcome.exit_code, outcome.reason) == (1, "worker 1 failed with exit code 1")


# Ends by itself with the job's code when its worker has gone, as the test says by a file.
FOLLOWS = SHARD + "import os, time\nwhile not os.path.exists('gone'): time.sleep(0.01)\nsys.exit(CODE)"


@pytest.mark.parametrize(
    ("workers_code", "shards_code", "reason"),
    [
        (5, 5, "worker 0 failed with exit code 5"),
        (4, 6, "ps 0 failed with exit code 6"),
        (4, 4, "worker 0 failed with exit code 4"),
        (6, 4, "worker 0 failed with exit code 6"),
    ],
)
def test_the_others_end_with_the_jobs_code_and_the_cause_is_named(
    plan: Callable[..., LaunchPlan], tmp_path: Path, workers_code: int, shards_code: int, reason: str
) -> None:
    seen = Acting(lambda: seen.lives("worker 0"), (tmp_path / "gone").touch)
    fails = JOINED + f"sys.exit({workers_code})"
    outcome, _ = run(plan(shard=FOLLOWS.replace("CODE", str(shards_code)), worker=fails, settle=30.0), seen)
    assert seen.codes() == {"worker 0": workers_code, "ps 0": shards_code}
    assert (outcome.exit_code, outcome.reason) == (int(reason[-1]), reason)
