"""The `worker` command in a process of its own or in this one, and what its flags make."""

from __future__ import annotations

import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from io import StringIO
from unittest import mock

from grpc_ps.client.shared.main import run_main
from grpc_ps.worker import command
from grpc_ps.worker.command import build_config, worker
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.interrupt import Interrupt

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


def called(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs the command in this process, which has TensorFlow already."""
    out, err = StringIO(), StringIO()
    code: object = None
    with mock.patch.object(sys, "argv", ["worker", *args]), redirect_stdout(out), redirect_stderr(err):
        try:
            run_main(lambda: command.run(Interrupt()), "worker")
        except SystemExit as end:
            code = end.code
    assert isinstance(code, int)
    return subprocess.CompletedProcess(args, code, out.getvalue(), err.getvalue())


def run(*args: str) -> subprocess.CompletedProcess[str]:
    """Runs the command as installed."""
    command = [sys.executable, "-c", COMMAND, *args]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
