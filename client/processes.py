"""Processes that live and end together: started, read, watched and ended as one group."""

from __future__ import annotations

import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType
from typing import IO

from grpc_ps.client import tether
from grpc_ps.client.shared.errors import PeerUnreachable

# Lines of a process that are kept to be shown when it fails.
TAIL_LINES = 20
# Seconds that a process gets to end by itself after SIGTERM: its own grace time, 5, and some air.
GRACE_SECONDS = 7.0
# What ssh exits with when it has no connection, or not any more.
UNREACHABLE = 255
# Seconds to wait for what must follow at once: the end of a killed process, the rest of an ended one's output.
_AT_ONCE = 5.0


@dataclass(frozen=True, slots=True)
class Line:
    """A process wrote a line, to stdout or to stderr."""

    child: Child
    text: str
    stdout: bool


@dataclass(frozen=True, slots=True)
class Exited:
    """A process ended. Every line that it wrote came before."""

    child: Child


@dataclass(frozen=True, slots=True)
class Signalled:
    """This process itself got a signal that asks it to end."""

    number: int


Event = Line | Exited | Signalled


class Child:
    """A process of a group, in a session of its own so that a terminal's Ctrl-C does not reach it.

    All it writes goes to its log file as well. Made by `ProcessGroup.start` in the main thread only: on Linux the
    kernel ends it together with the thread that started it.
    """

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        log: Path,
        post: Callable[[Event], None],
        *,
        again: bool = False,
        remote: bool = False,
    ) -> None:
        """Starts `command`, called `name` for people, with its output in the file `log` and as events to `post`.

        `again` lets what is in the file stay. A `remote` command is ssh's (`grpc_ps.client.remote`): what it has
        started elsewhere lives as long as its stdin is open here.
        """
        self.name = name
        self.tail: deque[str] = deque(maxlen=TAIL_LINES)
        # None until its `Exited` came; 128 + n if signal n ended it, as in a shell.
        self.code: int | None = None
        self._post = post
        self._log = log.open("ab" if again else "wb", buffering=0)
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", tether.__file__, str(os.getpid()), *command],
            stdin=subprocess.PIPE if remote else subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
            env={**os.environ, "PYTHONUNBUFFERED": "1"},
        )
        self.pid = self._process.pid
        threading.Thread(target=self._watch, name=f"watch {name}", daemon=True).start()

    def signal(self, number: int) -> None:
        """Sends a signal to the process and to all that it started, unless it has ended.

        A remote one is told to end by the end of its stdin, so that its last words still arrive.
        """
        if self._process.stdin is not None and number == signal.SIGTERM:
            with suppress(OSError):
                self._process.stdin.close()
        elif self.code is None:
            # It may have ended while its `Exited` is still on the way; macOS calls that a lack of permission.
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, number)

    def exit_code(self) -> int:
        """Returns the exit code of an ended process; that of a peer that cannot be reached for ssh's own."""
        code = self._process.returncode
        if code == UNREACHABLE and self._process.stdin is not None:
            return PeerUnreachable.exit_code
        return 128 - code if code < 0 else code

    def _watch(self) -> None:
        """Reads all output, reaps the process, and says so when nothing more can come."""
        assert self._process.stdout is not None
        assert self._process.stderr is not None
        readers = [
            threading.Thread(target=self._read, args=(self._process.stdout, True), daemon=True),
            threading.Thread(target=self._read, args=(self._process.stderr, False), daemon=True),
        ]
        for reader in readers:
            reader.start()
        self._process.wait()
        # What it started itself and left behind would hold its output open, and outlive the group.
        self.signal(signal.SIGKILL)
        if self._process.stdin is not None:
            with suppress(OSError):
                self._process.stdin.close()
        for reader in readers:
            reader.join(_AT_ONCE)
        self._log.close()
        self._post(Exited(self))

    def _read(self, stream: IO[bytes], stdout: bool) -> None:
        with stream:
            for line in stream:
                with suppress(OSError, ValueError):  # a full disk must not stop the process
                    self._log.write(line)
                self._post(Line(self, line.decode(errors="replace").rstrip(), stdout))


class ProcessGroup:
    """Starts processes and hands out what happens to them, one event after the other, in the caller's thread.

    A context manager: leaving it ends every process. `observe` gets each event before the caller does, and also those
    that come while the group ends.
    """

    def __init__(self, log_dir: Path, observe: Callable[[Event], None], *, grace: float = GRACE_SECONDS) -> None:
        self.children: list[Child] = []
        self._log_dir = log_dir
        self._observe = observe
        self._grace = grace
        # SimpleQueue, because signal handlers put into it.
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()

    def start(self, name: str, command: Sequence[str], *, again: bool = False, remote: bool = False) -> Child:
        """Starts a process whose log file is named after it: "worker 1" writes worker-1.log.

        One that is started `again` after its end goes on in the same file. `remote` is as for `Child`.
        """
        log = self._log_dir / f"{name.replace(' ', '-')}.log"
        child = Child(name, command, log, self._events.put, again=again, remote=remote)
        self.children.append(child)
        return child

    def running(self) -> list[Child]:
        """Returns the processes that have not ended, as far as events were handed out."""
        return [child for child in self.children if child.code is None]

    def wait(self, deadline: float | None = None) -> Event | None:
        """Returns the next event, or None at the deadline, a time of time.monotonic(). Blocks without one."""
        timeout = None if deadline is None else max(0.0, deadline - time.monotonic())
        try:
            event = self._events.get(timeout=timeout)
        except queue.Empty:
            return None
        if isinstance(event, Line):
            event.child.tail.append(event.text)
        elif isinstance(event, Exited):
            event.child.code = event.child.exit_code()
        self._observe(event)
        return event

    def end(self) -> list[Child]:
        """Ends all processes: SIGTERM, and SIGKILL after the grace time or at once on a further signal to this process.

        Returns those that even then did not go, which only the kernel can hold (a dead disk, say).
        """
        self._signal(signal.SIGTERM)
        self._wait_for_all(self._grace, until_signal=True)
        self._signal(signal.SIGKILL)
        self._wait_for_all(_AT_ONCE, until_signal=False)
        return self.running()

    @contextmanager
    def signals(self, *numbers: int) -> Iterator[None]:
        """Turns signals to this process into events while the block runs. Main thread only.

        SIGHUP stays ignored where it is (nohup). SIGINT does not: scripts ignore it for all that they start with `&`.
        """

        def post(number: int, _: FrameType | None) -> None:
            self._events.put(Signalled(number))

        before = {
            number: signal.signal(number, post)
            for number in numbers
            if number != signal.SIGHUP or signal.getsignal(number) is not signal.SIG_IGN
        }
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def __enter__(self) -> ProcessGroup:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self.end()

    def _signal(self, number: int) -> None:
        for child in self.running():
            child.signal(number)

    def _wait_for_all(self, seconds: float, *, until_signal: bool) -> None:
        deadline = time.monotonic() + seconds
        while self.running():
            event = self.wait(deadline)
            if event is None or (until_signal and isinstance(event, Signalled)):
                return


def last_lines(children: Iterable[Child]) -> list[str]:
    """Returns the last lines of processes, each with its name in front."""
    return [f"[{child.name}] {text}" for child in children for text in child.tail]
