"""Small scripts that a test installs beside psctl in the place of `worker` and `psserver`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from grpc_ps.client import cluster_file

# Serves until as many workers as WORKERS says have come and gone.
PSSERVER = """
import os, socket, sys
print("started", sys.argv[1:], file=sys.stderr)
server = socket.create_server(("127.0.0.1", 0))
print(f"READY shard=0 address=127.0.0.1:{server.getsockname()[1]}", flush=True)
for peer in [server.accept()[0] for _ in range(int(os.environ["WORKERS"]))]:
    peer.recv(1)
"""
WORKER = """
import json, socket, sys
flags = sys.argv[1:]
if "--check" in flags:
    sys.exit(0)
host, port = flags[flags.index("--ps") + 1].split(":")
peer = socket.create_connection((host, int(port)))
print("flags", *flags, file=sys.stderr)
index = int(flags[flags.index("--index") + 1])
print(json.dumps({
    "worker": index, "global_step": 30, "local_steps": 15, "accuracy": 0.9125 if index == 0 else None,
    "metrics": {"accuracy": 0.9125, "mse": 0.000012, "gap": None} if index == 0 else {},
    "outcomes": {"APPLIED": 15, "LATE": 0},
}))
"""
REFUSING = """
import sys
from pathlib import Path
print("some warning", file=sys.stderr)
print("worker: error: unknown model 'mnits', did you mean 'mnist'?", file=sys.stderr)
sys.exit(2)
"""


def install_programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Installs scripts by name in `folder`/bin beside a psctl, and makes the empty `folder`/here the current folder."""
    programs = folder / "bin"
    programs.mkdir()
    for name, script in scripts.items():
        (programs / name).write_text(f"#!{sys.executable}\n{script}")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(programs / "psctl")])
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")


def installer(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Returns what installs a psserver that serves `workers` workers, and a worker; or others in their place."""

    def install(*, worker: str = WORKER, psserver: str = PSSERVER, workers: int = 1) -> None:
        install_programs(folder, monkeypatch, worker=worker, psserver=psserver)
        monkeypatch.setenv("WORKERS", str(workers))

    return install


def write_cluster(launcher: int, exit_code: int | None = None) -> None:
    """Writes the cluster file of a launch into the folder where it is looked for."""
    shard = cluster_file.Process(name="ps 0", pid=launcher, address="127.0.0.1:1")
    content = cluster_file.ClusterFile(launcher=launcher, shards=(shard,), exit_code=exit_code)
    content.write(Path())
