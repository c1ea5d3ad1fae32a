"""A user's own program: README's example, and clusters that leave nothing behind."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

import pytest
from commands import DEADLINE, ENDED

from grpc_ps.client import LocalCluster, ParameterSpec, PSClient, PsError
from grpc_ps.client.cluster_file import ClusterFile, is_running
from grpc_ps.client.shared.errors import JobFailed

pytestmark = pytest.mark.e2e

README = Path(__file__).parents[2] / "README.md"


def run(code: str, folder: Path) -> subprocess.CompletedProcess[str]:
    (folder / "own.py").write_text(code)
    return subprocess.run([sys.executable, "own.py"], cwd=folder, capture_output=True, text=True, timeout=DEADLINE)


def gone(pids: list[int], seconds: float = ENDED) -> bool:
    deadline = time.monotonic() + seconds
    while any(map(is_running, pids)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return not any(map(is_running, pids))


def test_the_first_seeds_regression_is_no_more_than_25_lines_and_finds_the_line(tmp_path: Path) -> None:
    (code,) = [
        block for block in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "Monitored" in block
    ]
    assert len([line for line in code.splitlines() if line.strip()]) <= 25
    done = run(code, tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    lines = [
        re.fullmatch(r"step: (\d+), weight: (\S+), bias: (\S+), loss: (\S+)", line) for line in done.stdout.splitlines()
    ]
    steps = [(int(found[1]), float(found[2]), float(found[3])) for found in lines if found]
    assert [step for step, _, _ in steps] == list(range(100, 1001, 100))
    assert steps[-1][1:] == pytest.approx((0.1, 0.3), abs=0.01)


def test_a_local_cluster_ends_with_its_block_whatever_happens_in_it(tmp_path: Path) -> None:
    pids = []
    with suppress(ZeroDivisionError), LocalCluster(ps=2, log_dir=tmp_path) as cluster:
        assert ClusterFile.read(tmp_path).exit_code is None
        pids += cluster.pids
        with cluster.client(timeout=5) as client:
            assert client.status().shards[0].address == cluster.addresses.split(",")[0]
        assert all(map(is_running, pids))
        raise ZeroDivisionError
    assert len(pids) == 2
    assert gone(pids)
    # psctl is told that it is over, and another cluster may have the folder, though this process goes on.
    assert ClusterFile.read(tmp_path).exit_code is not None
    with pytest.raises(JobFailed, match=r"^the LocalCluster has been closed$"):
        print(cluster.addresses)
    with pytest.raises(PsError, match=r"ps 0 failed with exit code 2: .*--no-such"):
        LocalCluster(no_such=3).start()


def test_whoever_comes_to_a_local_cluster_after_its_job_is_told_at_once() -> None:
    """Long before the timeout, and whether or not the address was asked for while the shard was there."""
    weights = [ParameterSpec(name="w", shape=(1,), dtype="float32")]
    with LocalCluster() as cluster:
        addresses = cluster.addresses
        with cluster.client() as client:
            client.stop()
        assert cluster.wait() == [0]
        with PSClient(addresses, timeout=1000.0) as late, pytest.raises(JobFailed, match=r"^the job is over, and the"):
            late.join("m", weights)
        with pytest.raises(JobFailed, match=r"^the job is over, and the shards of the LocalCluster have ended with it"):
            cluster.client()


@pytest.mark.parametrize("end", ["sys.exit(0)", "raise RuntimeError('the cell fails')", "os._exit(3)"])
def test_a_local_cluster_ends_with_its_interpreter(end: str, tmp_path: Path) -> None:
    code = (
        "import os, sys\nfrom grpc_ps.client import LocalCluster\n"
        f"cluster = LocalCluster().start()\nprint(*cluster.pids, flush=True)\n{end}\n"
    )
    done = run(code, tmp_path)
    pids = [int(pid) for pid in done.stdout.split()]
    assert len(pids) == 1, done.stderr
    assert gone(pids)
