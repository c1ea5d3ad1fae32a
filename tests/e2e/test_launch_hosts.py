"""`psctl launch --hosts FILE --ssh` with the real programs, and workers that keep to their cores."""

from __future__ import annotations

import os
import sys
from contextlib import suppress
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from commands import Command
from fake_ssh import SSH
from history import wait_for
from ports import free_port

from grpc_ps.client.shared.cores import allowed_cores

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="needs 127.0.0.2 and cores that can be chosen"),
]


def test_two_hosts_train_on_their_cores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    programs = Path(sys.executable).parent
    (tmp_path / "ssh").write_text(f"#!{sys.executable}\n{SSH}")
    (tmp_path / "ssh").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    # A variable of another cluster is in nobody's way.
    monkeypatch.setenv("TF_CONFIG", '{"cluster": {"ps": ["nowhere:1"]}, "task": {"type": "ps", "index": 0}}')
    first, last = allowed_cores()[0], allowed_cores()[-1]
    lines = [f"127.0.0.1:{free_port()} ps=1 workers=1 cores={first}", f"127.0.0.2 workers=1 cores={last}"]
    (tmp_path / "hosts").write_text("".join(f"{line} bin={programs}\n" for line in lines))
    flags = ("--hosts", tmp_path / "hosts", "--ssh", "--log-dir", tmp_path / "logs", "--model", "linear")
    with Command("psctl", "launch", *flags, "--steps", 10**9) as launch:
        for index, core in ((0, first), (1, last)):
            launch.until(rf"^\[worker {index}\] .*global_step")
            assert cores_of_all_threads(worker(tmp_path, index)) == {(core,)}
        launch.process.terminate()
        assert launch.wait() == 143, launch.text
    # What is started through ssh ends because its connection does.
    wait_for(lambda: [worker(tmp_path, index) for index in (0, 1)] == [None, None], "the end of all workers")


def worker(folder: Path, index: int) -> psutil.Process | None:
    """The process of a worker of the cluster that the hosts file of that folder describes; None if there is none."""
    address = (folder / "hosts").read_text().split()[0]
    for process in psutil.process_iter(["cmdline", "status"]):
        words = process.info["cmdline"] or []
        flags = dict(pairwise(words))
        is_worker = len(words) > 1 and Path(words[1]).name == "worker" and flags.get("--ps") == address
        if is_worker and flags.get("--index") == str(index):
            return process
    return None


def cores_of_all_threads(process: psutil.Process | None) -> set[tuple[int, ...]]:
    """The sets of cores that its threads keep to; one may end meanwhile."""
    assert process is not None
    found = set()
    for thread in process.threads():
        with suppress(ProcessLookupError):
            found.add(tuple(sorted(os.sched_getaffinity(thread.id))))
    return found
