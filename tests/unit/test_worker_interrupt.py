"""Signals end a worker at once while it holds nothing, and let it leave when it is a member."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, os, signal, sys, threading
from grpc_ps.worker.interrupt import Interrupt

class Session:
    def __init__(self): self.told = threading.Event()
    def interrupt(self, why):
        print(why, flush=True)
        if "fails" in sys.argv: raise RuntimeError("boom")
        self.told.set()

interrupt = Interrupt()
interrupt.install()
if "alarm" in sys.argv:
    signal.signal(signal.SIGALRM, lambda number, frame: print("alarm", flush=True))
    signal.raise_signal(signal.SIGALRM)
if "fork" in sys.argv:
    here, there = os.pipe()
    child = os.fork()
    if not child:
        os.write(there, b"!")
        threading.Event().wait(30)
        os._exit(0)
    os.read(here, 1)
    os.kill(child, signal.SIGTERM)
    print("child", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
# Else longer than a test waits, so that nothing but what it tests ends the process.
interrupt.grace = 0.2 if "short" in sys.argv else 300.0
session = Session()
if "member" in sys.argv: interrupt.watch(session)
if "native" in sys.argv:
    lock, mutex = ctypes.CDLL(None).pthread_mutex_lock, ctypes.create_string_buffer(64)
    lock(mutex)
    main = threading.main_thread().ident

    def tell():
        while sys._current_frames()[main].f_code.co_name != "endless": pass
        print("ready", flush=True)

    def endless():
        # Locked twice: never back from native code, as in a long TensorFlow operation.
        lock(mutex)

    threading.Thread(target=tell, daemon=True).start()
    endless()
print("ready", flush=True)
session.told.wait(30)
if "stuck" in sys.argv: threading.Event().wait(30)
print("left", flush=True)
sys.exit(128 + interrupt.number)
"""


def ended(number: signal.Signals, *arguments: str, times: int = 1) -> tuple[int, list[str]]:
    """Runs the program, sends the signal, and returns exit code and output."""
    command = [sys.executable, "-c", PROGRAM, *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            lines = [process.stdout.readline().strip()]
            for _ in range(times):
                process.send_signal(number)
                if times > 1 and len(lines) == 1:
                    lines.append(process.stdout.readline().strip())
            rest, _ = process.communicate(timeout=20)
        finally:
            process.kill()
        return process.returncode, [*lines, *rest.split("\n")[:-1]]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_without_a_session_the_process_ends_at_once(number: signal.Signals) -> None:
    assert ended(number) == (128 + number, ["ready"])


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_member_is_told_and_leaves(number: signal.Signals) -> None:
    assert ended(number, "member") == (128 + number, ["ready", f"ended by {number.name}", "left"])


def test_a_second_signal_ends_it_at_once() -> None:
    code, lines = ended(signal.SIGTERM, "member", "stuck", times=2)
    assert (code, lines) == (143, ["ready", "ended by SIGTERM"])


@pytest.mark.parametrize("times", [1, 2])
def test_signals_reach_a_member_whose_main_thread_is_in_native_code(times: int) -> None:
    """Python's own handlers wait for the main thread, which may be inside an operation that takes for ever."""
    flags = ["short"] if times == 1 else []
    code, lines = ended(signal.SIGTERM, "member", "native", *flags, times=times)
    assert (code, lines) == (143, ["ready", "ended by SIGTERM"])


def test_the_grace_time_ends_a_member_that_does_not_leave() -> None:
    code, lines = ended(signal.SIGTERM, "member", "stuck", "short")
    assert (code, lines) == (143, ["ready", "ended by SIGTERM"])


@pytest.mark.parametrize("flags", [(), ("member",)])
def test_other_signals_and_a_childs_own_are_nobodys_end(flags: tuple[str, ...]) -> None:
    """Python writes every signal with a handler to the pipe, and a forked child has the same pipe."""
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PROGRAM, "alarm", "fork", *flags]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        lines = [process.stdout.readline().strip() for _ in range(3)]
        process.send_signal(signal.SIGTERM)
        rest, _ = process.communicate(timeout=20)
    assert lines == ["alarm", "child -15", "ready"]
    assert rest.split("\n")[:-1] == (["ended by SIGTERM", "left"] if flags else [])
    assert process.returncode == 143


def test_a_session_that_cannot_be_told_does_not_keep_the_process() -> None:
    """Whatever goes wrong in the thread that tells it, the grace time ends the process."""
    code, lines = ended(signal.SIGTERM, "member", "fails", "short")
    assert (code, lines) == (143, ["ready", "ended by SIGTERM"])
