"""The `worker` command in a process of its own, and what its flags make."""

from __future__ import annotations

import subprocess
import sys

from grpc_ps.worker.cli import build_config, worker
from grpc_ps.worker.config import WorkerConfig

LINEAR = ("--ps", "a:1", "--model", "linear")
MNIST = ("--ps", "a:1", "--model", "mnist")

# The command as installed; afterwards stdout says what was imported.
COMMAND = """
import os, sys
def end(code, end=os._exit):
    print("imported", *sorted({"grpc", "tensorflow"} & sys.modules.keys()), flush=True)
    end(code)
os._exit = end
from grpc_ps.worker.cli import main
sys.argv[0] = "worker"
main()
"""


def config_of(*args: str) -> WorkerConfig:
    context = worker.make_context("worker", list(args))
    return build_config(context.params)


def run(*args: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", COMMAND, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
