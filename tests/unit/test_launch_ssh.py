"""`psctl launch --hosts FILE --ssh` with an ssh that stays here, and small scripts for psserver and worker."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path

import psutil
import pytest
from fake_programs import install_programs
from fake_ssh import SSH
from history import wait_for
from ports import kept_port

from grpc_ps.client.commands.group import run
from grpc_ps.client.shared.errors import JobFailed

# Serves until as many workers as WORKERS says have come and gone. Each process leaves its id in a file.
PSSERVER = """
import os, signal, socket, sys
open(f"ps-{os.getpid()}.pid", "w").close()
def told(number, frame):
    print("told to end", file=sys.stderr, flush=True)
    sys.exit(143)
signal.signal(signal.SIGTERM, told)
flags = sys.argv[1:]
shard = int(flags[flags.index("--shard") + 1])
host, port = flags[flags.index("--ps") + 1].split(",")[shard].split(":")
server = socket.create_server((host, int(port)))
print(f"READY shard={shard} address=0.0.0.0:{port}", flush=True)
for peer in [server.accept()[0] for _ in range(int(os.environ["WORKERS"]))]:
    peer.recv(1)
"""
WORKER = """
import json, os, signal, socket, sys, time
if "--validate" in sys.argv:
    sys.exit()
open(f"worker-{os.getpid()}.pid", "w").close()
flags = sys.argv[1:]
index = int(flags[flags.index("--index") + 1])
host, port = flags[flags.index("--ps") + 1].split(",")[0].split(":")
peer = socket.create_connection((host, int(port)))
print("flags", *flags, file=sys.stderr, flush=True)
"""
ENDS = WORKER + 'print(json.dumps({"worker": index, "global_step": 30, "local_steps": 15}))\n'
STAYS = WORKER + "signal.pause()\n"
FAILS = WORKER + "sys.exit(5) if index == 1 else signal.pause()\n"
PSCTL = "from grpc_ps.client.commands import main\nmain()\n"

Launch = Callable[..., int]


@pytest.fixture
def launch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Launch:
    """Installs the programs and launches them: a shard on one host, two workers on another."""

    def start(worker: str, second: str = "127.0.0.2") -> int:
        install_programs(tmp_path, monkeypatch, worker=worker, psserver=PSSERVER, psctl=PSCTL, ssh=SSH)
        monkeypatch.setenv("WORKERS", "2")
        monkeypatch.setenv("PATH", f"{tmp_path}/bin{os.pathsep}{os.environ['PATH']}")
        there = f"bin={tmp_path}/bin"
        flags = ["--hosts", "hosts", "--ssh", "--insecure", "--model", "linear", "--log-dir", "logs", "--grace", "5"]
        with kept_port() as port:
            Path("hosts").write_text(f"127.0.0.1:{port} ps=1 {there}\n{second} workers=2 cores=3 {there}\n")
            return run(["launch", *flags])

    return start


def lives(kind: str) -> list[int]:
    """The processes of that kind that have not ended."""
    pids = [int(path.stem.partition("-")[2]) for path in Path().glob(f"{kind}-*.pid")]
    return [pid for pid in pids if _runs(pid)]


def _runs(pid: int) -> bool:
    try:
        # Where nobody reaps what has lost its parent it stays a zombie.
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def pairs(words: list[str]) -> list[list[str]]:
    return [list(pair) for pair in pairwise(words)]


def ssh_of(index: str) -> psutil.Process:
    """The ssh that runs that worker."""
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if words[1:2] == [str(Path("../bin/ssh").resolve())] and ["--index", index] in pairs(words):
            return process
    raise AssertionError(f"no ssh for worker {index}")


def when(text: str, log: str, act: Callable[[], object]) -> threading.Thread:
    """Does something once a log of the launch has a line."""

    def wait() -> None:
        path = Path("logs") / log
        wait_for(lambda: path.exists() and text in path.read_text(), f"{text} in {log}", 90)
        act()

    thread = threading.Thread(target=wait, daemon=True)
    thread.start()
    return thread


pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc, and needs 127.0.0.2")


def test_all_hosts_end_by_themselves(launch: Launch, capsys: pytest.CaptureFixture[str]) -> None:
    assert launch(ENDS) == 0
    lines = capsys.readouterr().out.splitlines()
    flags = next(line for line in lines if line.startswith("[worker 1] flags --ps 127.0.0.1:"))
    assert "--index 1 --cores 3 " in flags
    assert flags.endswith(" --json")
    # The shard listens on all addresses; the others know it by that of its line.
    assert any(line.startswith("shards: 127.0.0.1:") for line in lines)
    assert lines[-3].startswith("done: global step 30, ")
    assert lives("ps") + lives("worker") == []


def test_one_failure_ends_all_hosts(launch: Launch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(JobFailed, match="worker 1 failed with exit code 5") as caught:
        launch(FAILS)
    assert caught.value.exit_code == 5
    # The last words of those that are told to end still arrive.
    assert "[ps 0] told to end" in capsys.readouterr().out
    assert lives("ps") + lives("worker") == []


def test_ctrl_c_ends_all_hosts(launch: Launch) -> None:
    thread = when("flags", "worker-1.log", lambda: os.kill(os.getpid(), signal.SIGINT))
    with pytest.raises(JobFailed, match="ended by SIGINT") as caught:
        launch(STAYS)
    thread.join(10)
    assert caught.value.exit_code == 130
    assert lives("ps") + lives("worker") == []


def test_a_host_that_cannot_be_reached_ends_all(launch: Launch, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(JobFailed, match=r"worker [01] failed with exit code 4") as caught:
        launch(STAYS, second="unreachable")
    assert caught.value.exit_code == 4
    assert "ssh: connect to host unreachable port 22: Connection refused" in capsys.readouterr().err
    assert lives("ps") == []


def test_a_connection_that_breaks_leaves_nothing_behind(launch: Launch) -> None:
    """Whatever becomes of ssh itself: the process at the other end is told to end by the end of its connection."""
    found: list[int] = []

    def cut() -> None:
        found.extend(lives("worker"))
        ssh_of("0").kill()

    thread = when("flags", "worker-0.log", cut)
    with pytest.raises(JobFailed, match="worker 0 failed with exit code 137"):
        launch(STAYS)
    thread.join(10)
    assert found
    wait_for(lambda: not lives("worker") and not lives("ps"), "the end of all", 60)
