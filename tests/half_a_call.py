"""Processes that begin a pull or a push, say so, and hang: to be killed in the middle of it.

    python half_a_call.py

Imports gRPC once, and then forks such a process for each line: `pull ADDRESS`, or `push ADDRESS FILE` with the messages
of the stream in FILE, one a line, in hexadecimal. The process prints its id when it has got some values, or sent all of
that.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType

import grpc

SERVICE = "/grpc_ps.v1.ParameterServer"


class HalfCalls:
    """Begins such calls, one after the other."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._running = 0

    def begin(self, *words: str) -> None:
        """Starts a process, and waits until it is in the middle of its call."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        self._running = int(self._process.stdout.readline())

    def kill(self) -> None:
        """Kills it."""
        os.kill(self._running, signal.SIGKILL)
        self._running = 0

    def __enter__(self) -> HalfCalls:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._running:
            self.kill()
        self._process.communicate(timeout=20)


def say_so() -> None:
    print(os.getpid(), flush=True)
    threading.Event().wait(60)


def pull(address: str) -> None:
    with grpc.insecure_channel(address) as channel:
        messages = channel.unary_stream(f"{SERVICE}/Pull")(b"")
        next(messages)
        say_so()


def push(address: str, file: str) -> None:
    messages = [bytes.fromhex(line) for line in Path(file).read_text().splitlines()]

    def requests() -> Iterator[bytes]:
        yield from messages
        # gRPC asks for more when it has taken the last one.
        say_so()

    with grpc.insecure_channel(address) as channel:
        for _ in channel.stream_stream(f"{SERVICE}/PushPull")(requests()):
            pass


def main() -> None:
    for line in sys.stdin:
        what, *arguments = line.split()
        child = os.fork()
        if child == 0:
            (pull if what == "pull" else push)(*arguments)
            os._exit(1)
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        if code != -signal.SIGKILL:
            print(what, "has ended with", code, flush=True)


if __name__ == "__main__":
    main()
