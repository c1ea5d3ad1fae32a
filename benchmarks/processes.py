"""The processes of a benchmark: commands beside this Python, all ended with the block that started them."""

from __future__ import annotations

import re
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

from grpc_ps.client.processes import Child, Event, Exited, Line, ProcessGroup, last_lines

# Seconds between SIGTERM and SIGKILL: more than psctl gives its own processes.
_GRACE = 20.0


@contextmanager
def processes(grace: float = _GRACE) -> Iterator[ProcessGroup]:
    """A group that has ended when the block is left, `grace` seconds after SIGTERM at the latest; its logs go too."""
    with (
        tempfile.TemporaryDirectory(prefix="grpc-ps-benchmark-") as logs,
        ProcessGroup(Path(logs), lambda event: None, grace=grace) as group,
    ):
        yield group


def program(name: str) -> str:
    """The path of a command that is installed beside this Python."""
    path = Path(sys.executable).with_name(name)
    if not path.exists():
        raise SystemExit(f"{path} is missing: install grpc-ps into this environment")
    return str(path)


def script(name: str) -> list[str]:
    """The command line of another script of this folder."""
    return [sys.executable, str(Path(__file__).with_name(name))]


def events(group: ProcessGroup, seconds: float) -> Iterator[Event]:
    """Hands out what happens. A process that fails, and `seconds` without an end, end the benchmark."""
    deadline = time.monotonic() + seconds
    while (event := group.wait(deadline)) is not None:
        if isinstance(event, Exited) and event.child.code:
            _give_up(f"{event.child.name} ended with exit code {event.child.code}", group)
        yield event
    _give_up(f"not done within {seconds:g} s", group)


def await_line(group: ProcessGroup, child: Child, pattern: str, seconds: float = 120.0) -> re.Match[str]:
    """Waits for a line of that process in which `pattern` is found."""
    for event in events(group, seconds):
        if isinstance(event, Line) and event.child is child and (found := re.search(pattern, event.text)):
            return found
    raise AssertionError("`events` ends by raising")


def _give_up(why: str, group: ProcessGroup) -> None:
    raise SystemExit("\n".join([*last_lines(group.children), f"benchmark: {why}"]))


def run_to_end(main: Callable[[], None]) -> None:
    """Runs a benchmark: SIGTERM unwinds it like Ctrl-C, so that what it started is ended."""

    def end(number: int, _: FrameType | None) -> None:
        raise SystemExit(128 + number)

    signal.signal(signal.SIGTERM, end)
    # Scripts start what they put behind with `&` with this signal ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
