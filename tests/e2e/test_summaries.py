"""--logdir as a user types it: a job whose processes are killed, read back with TensorBoard's own reader."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from commands import Command
from event_files import check_whole, files

pytestmark = [pytest.mark.e2e, pytest.mark.timeout(320)]


def test_summaries_are_whole_after_kills(tmp_path: Path) -> None:
    """Worker 1 kills itself before its 20th push, the lead after the 45th update: all go back to step 20 or 40."""
    logdir = tmp_path / "summaries"
    job = ("--ps", 1, "--workers", 2, "--model", "linear", "--mode", "sync", "--steps", 90, "--max-restarts", 2)
    saving = ("--checkpoint-dir", tmp_path / "saved", "--checkpoint-steps", 20, "--lease", 6)
    faults = ("--fault", "worker 1: kill@computed:20", "--fault", "ps 0: kill@applied:45")
    summaries = ("--logdir", logdir, "--summary-every", 1)
    command = ("psctl", "launch", *job, *saving, *faults, *summaries, "--log-dir", tmp_path / "logs", "--json")
    with Command(*map(str, command)) as launch:
        assert launch.wait(300) == 0, launch.text
    record = launch.summary()
    assert (record["global_step"], record["restarts"]) == (90, 2)
    resumed = re.search(r"resumed checkpoint=\S*step-(\d+) ", (tmp_path / "logs" / "ps-0.log").read_text())
    # The checkpoint of step 40 may not be whole yet at the 45th update.
    assert resumed is not None
    assert int(resumed[1]) in (20, 40)
    whole = check_whole(logdir)
    assert set(whole) == {"worker-0", "worker-1", "job"}
    # Worker 0 saw every step, and those behind the checkpoint twice.
    assert whole["worker-0"]["loss"] == list(range(1, 91))
    assert len(files(logdir / "worker-0")) == 2
    # The killed one has lost what it had not written yet, and nothing else.
    assert set(range(int(resumed[1]) + 1, 91)) <= set(whole["worker-1"]["loss"]) <= set(range(1, 91))
    assert whole["job"]["learning_rate"][-1] == 90
