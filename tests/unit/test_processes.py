"""Groups of processes: output, ends, and what is left when a process does not want to end."""

import os
import select
import signal
import subprocess
import sys
import time

import pytest

from grpc_ps.client import tether
from grpc_ps.client.processes import Exited, Line, ProcessGroup, Signalled

DEADLINE = 30.0
STUBBORN = """
import signal, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ignoring", flush=True)
while True:
    signal.pause()
"""
PATIENT = "import signal; print('here', flush=True); signal.pause()"


def python(script, *arguments):
    return [sys.executable, "-c", script, *arguments]


@pytest.fixture
def events():
    return []


@pytest.fixture
def group(tmp_path, events):
    with ProcessGroup(tmp_path, events.append, grace=DEADLINE) as group:
        yield group


def wait_for(group, wanted):
    deadline = time.monotonic() + DEADLINE
    while (event := group.wait(deadline)) is not None:
        if wanted(event):
            return event
    pytest.fail("the event did not come")


def line(text):
    return lambda event: isinstance(event, Line) and event.text == text


def exited(event):
    return isinstance(event, Exited)


def wait_until_gone(pid):
    """Waits for the end of a process that need not be a child of this one."""
    try:
        descriptor = os.pidfd_open(pid)
    except ProcessLookupError:
        return
    try:
        assert select.select([descriptor], [], [], DEADLINE)[0], f"process {pid} still runs"
    finally:
        os.close(descriptor)


def test_lines_come_before_the_end_and_are_kept_in_the_log(group, events, tmp_path):
    script = "import sys; print('out'); print('error', file=sys.stderr); sys.stdout.write('no newline'); sys.exit(3)"
    child = group.start("worker 1", python(script))
    wait_for(group, exited)
    assert child.code == 3
    assert isinstance(events[-1], Exited)
    assert {(event.text, event.stdout) for event in events[:-1]} == {
        ("out", True),
        ("error", False),
        ("no newline", True),
    }
    # The two streams may mix within the log, but no line is lost.
    assert sorted((tmp_path / "worker-1.log").read_text()) == sorted("out\nerror\nno newline")
    assert set(child.tail) == {"out", "error", "no newline"}


def test_only_the_last_lines_are_kept_in_memory(group):
    child = group.start("ps 0", python("for number in range(100): print(number)"))
    wait_for(group, exited)
    assert list(child.tail) == [str(number) for number in range(80, 100)]


def test_a_process_ended_by_a_signal_has_the_shells_code(group):
    child = group.start("ps 0", python("import os, signal; os.kill(os.getpid(), signal.SIGKILL)"))
    wait_for(group, exited)
    assert child.code == 137


def test_a_command_that_does_not_exist_is_an_exit_code(group):
    child = group.start("ps 0", ["/nowhere/psserver"])
    wait_for(group, exited)
    assert child.code == 127
    assert list(child.tail) == ["/nowhere/psserver: No such file or directory"]


def test_leaving_the_group_ends_its_processes(tmp_path):
    with ProcessGroup(tmp_path, lambda event: None, grace=DEADLINE) as group:
        children = [group.start(f"worker {number}", python(PATIENT)) for number in range(3)]
        for _ in children:
            wait_for(group, line("here"))
    assert [child.code for child in children] == [143, 143, 143]
    for child in children:
        wait_until_gone(child.pid)


def test_a_process_that_ignores_sigterm_is_killed_after_the_grace_time(tmp_path):
    with ProcessGroup(tmp_path, lambda event: None, grace=0.1) as group:
        child = group.start("worker 0", python(STUBBORN))
        wait_for(group, line("ignoring"))
    assert child.code == 137


def test_a_second_signal_does_not_wait_for_the_grace_time(group):
    child = group.start("worker 0", python(STUBBORN))
    wait_for(group, line("ignoring"))
    with group.signals(signal.SIGINT):
        os.kill(os.getpid(), signal.SIGINT)
        assert group.end() == []  # the fixture's grace time is longer than a test may take to be right
    assert child.code == 137


def test_what_a_process_started_ends_with_it(group):
    script = f"import subprocess, sys; p = subprocess.Popen([sys.executable, '-c', {STUBBORN!r}]); print(p.pid)"
    group.start("worker 0", python(script))
    pid = int(wait_for(group, lambda event: isinstance(event, Line) and event.text.isdigit()).text)
    wait_for(group, exited)
    wait_until_gone(pid)


def test_a_signal_to_this_process_becomes_an_event_and_handlers_come_back(group):
    before = signal.getsignal(signal.SIGTERM)
    with group.signals(signal.SIGTERM):
        os.kill(os.getpid(), signal.SIGTERM)
        assert wait_for(group, lambda event: True) == Signalled(signal.SIGTERM)
    assert signal.getsignal(signal.SIGTERM) is before


def test_wait_returns_none_at_its_deadline(group):
    assert group.wait(time.monotonic()) is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends a process with its parent")
def test_a_killed_parent_takes_the_process_with_it():
    script = "import os, subprocess, sys; subprocess.run([*sys.argv[1:3], str(os.getpid()), *sys.argv[3:]])"
    child = STUBBORN.replace('"ignoring"', "__import__('os').getpid()")
    command = python(script, sys.executable, tether.__file__, *python(child))
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
        pid = int(parent.stdout.readline())
        parent.kill()
    wait_until_gone(pid)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux ends a process with its parent")
def test_a_process_whose_parent_is_gone_already_does_not_start():
    command = [sys.executable, tether.__file__, "1", sys.executable, "-c", "print('started')"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=DEADLINE)
    assert (done.returncode, done.stdout) == (137, "")
