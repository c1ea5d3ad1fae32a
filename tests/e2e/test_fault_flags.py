"""--fault as a user types it: a process that kills itself at a named point, and how the others take it."""

from __future__ import annotations

import json
import signal
from pathlib import Path

import pytest
from commands import Command, ready, run
from light_process import light_process

pytestmark = pytest.mark.e2e


def test_a_shard_kills_itself_at_a_point() -> None:
    """As a crash would: no word to anybody. Its worker ends with exit code 4, for nothing of it can come back."""
    with Command("psserver", "--shard", 0, "--port", 0, "--fault", "kill@applied:5") as shard:
        address = ready(shard)
        with Command(*light_process(address, timeout=5.0)) as worker:
            assert shard.wait() == -signal.SIGKILL, shard.text
            assert worker.wait() == 4, worker.text
        assert shard.lines[-1].endswith("fault kind=kill point=applied count=5")
        assert worker.lines[-1].startswith("error: ")
        assert address in worker.lines[-1]


def test_launch_tells_each_process_its_own_faults(tmp_path: Path) -> None:
    """Worker 1 kills itself before its third push; shard 1 loses answers; started again, the job reaches its step."""
    flags = ("--ps", 2, "--workers", 2, "--model", "linear", "--mode", "sync", "--steps", 30, "--max-restarts", 1)
    faults = ("--fault", "worker 1: kill@computed:3", "--fault", "ps 1: drop-answer:PushPull@0.1", "--fault-seed", 5)
    done = run("psctl", "launch", *flags, *faults, "--lease", 6, "--log-dir", tmp_path, "--json")
    assert done.returncode == 0, done.stderr
    record = json.loads(done.stdout)
    assert (record["global_step"], record["restarts"]) == (30, 1)
    logs = {path.stem: path.read_text() for path in tmp_path.glob("*.log")}
    assert logs["worker-1"].count("fault kind=kill point=computed count=3") == 1
    assert "fault kind=drop-answer call=PushPull" in logs["ps-1"]
    assert not [name for name in ("ps-0", "worker-0") if " fault " in logs[name]]
