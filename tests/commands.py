"""The installed commands as child processes: started, read line by line, and always reaped."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

# No test judges a time: a machine may be busy with several of them, each of whose processes imports TensorFlow.
DEADLINE = 200.0
# For what a signal ends at once.
ENDED = 30.0
# For a worker that trains while a test does other things: else it takes the processor from them.
UNHURRIED = "delay:PushPull=0.01"


class Command:
    """One running command; leaving the `with` kills it if it still runs.

    `within` is what starts it, if not this process itself: the words before the command.

    Attributes:
        lines: what it has printed so far, stdout and stderr together, in order.
    """

    def __init__(self, name: str, *arguments: object, within: Sequence[str] = ()) -> None:
        self.name = name
        self.lines: list[str] = []
        self._news = threading.Condition()
        program = Path(sys.executable).with_name(name)
        self.process = subprocess.Popen(
            [*within, program, *map(str, arguments)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            with self._news:
                self.lines.append(line.rstrip("\n"))
                self._news.notify_all()

    def until(self, pattern: str, seconds: float = DEADLINE, *, after: int = 0) -> re.Match[str]:
        """Waits for a line that the pattern matches somewhere; the first lines, `after` of them, do not count."""
        deadline = time.monotonic() + seconds
        with self._news:
            while True:
                for line in self.lines[after:]:
                    if match := re.search(pattern, line):
                        return match
                left = deadline - time.monotonic()
                ended = not self._reader.is_alive()
                assert left > 0, f"{self.name} never printed {pattern!r}: {self.text}"
                assert not ended, f"{self.name} ended without {pattern!r}: {self.text}"
                self._news.wait(min(left, 0.1))

    def wait(self, seconds: float = DEADLINE) -> int:
        """Waits for the end; returns the exit code."""
        code = self.process.wait(seconds)
        self._reader.join(10)
        return code

    @property
    def text(self) -> str:
        """All that it printed."""
        return "\n".join(self.lines)

    def summary(self) -> dict[str, Any]:
        """The line of `--json`."""
        line = next(line for line in reversed(self.lines) if line.startswith("{"))
        record: dict[str, Any] = json.loads(line)
        return record

    def __enter__(self) -> Command:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait(10)
        self._reader.join(10)
        if self.process.stdout is not None:
            self.process.stdout.close()


def ready(shard: Command) -> str:
    """Waits until a shard serves; returns its address."""
    return shard.until(r"^READY shard=\d+ address=(\S+)$")[1]


def run(
    name: str, *arguments: object, seconds: float = DEADLINE, within: Sequence[str] = ()
) -> subprocess.CompletedProcess[str]:
    """Runs a command to its end."""
    words = [*within, Path(sys.executable).with_name(name), *map(str, arguments)]
    return subprocess.run(words, capture_output=True, text=True, timeout=seconds, check=False)
