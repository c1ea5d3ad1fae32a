"""Processes on other hosts, by ssh: the command that starts one here, and what holds it there.

A remote process lives as long as its connection. It is started through `psctl tether`, whose stdin is that connection:
when that ends, for whatever reason, the process is told to end, and killed after the grace time.
"""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from types import FrameType

from grpc_ps.client import tether
from grpc_ps.client.hosts import Assigned

# Never ask; notice within half a minute that a host is gone.
_OPTIONS = ("BatchMode=yes", "ConnectTimeout=15", "ServerAliveInterval=10", "ServerAliveCountMax=3")


def ssh_command(process: Assigned, *, ssh: str, grace: float, more: Sequence[str] = ()) -> list[str]:
    """Returns the command that runs a process on its host and passes its output and its exit code on.

    Args:
        process: what to run where.
        ssh: the program.
        grace: seconds that it gets to end in once the connection has.
        more: further flags of it.
    """
    options = [word for option in _OPTIONS for word in ("-o", option)]
    there = [process.host.program("psctl"), "tether", "--grace", f"{grace:g}", "--", *process.command, *more]
    # ssh joins its arguments with spaces and gives them to the user's shell there.
    return [ssh, "-T", *options, process.host.login, *map(shlex.quote, there)]


def hold(command: Sequence[str], grace: float) -> int:
    """Runs a command until it ends, or until stdin or a signal to this process says that it is to. Main thread only.

    Nothing that it has started outlives it. Returns its exit code, 128 + n if signal n ended it.
    """
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command],
        stdin=subprocess.DEVNULL,
        start_new_session=True,
        env={**os.environ, "PYTHONUNBUFFERED": "1"},
    )
    over = threading.Event()

    def end(*_: object) -> None:
        _signal(process.pid, signal.SIGTERM)
        if not over.wait(grace):
            _signal(process.pid, signal.SIGKILL)

    def on_signal(number: int, frame: FrameType | None) -> None:
        # A handler must not wait: the main thread has to reap the process.
        threading.Thread(target=end, daemon=True).start()

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, on_signal)
    threading.Thread(target=_at_end_of_stdin, args=(end,), name="stdin", daemon=True).start()
    code = process.wait()
    over.set()
    # What it started itself and left behind.
    _signal(process.pid, signal.SIGKILL)
    return 128 - code if code < 0 else code


def _at_end_of_stdin(end: Callable[[], object]) -> None:
    with suppress(OSError):
        while os.read(0, 4096):
            pass
    end()


def _signal(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(group, number)
