"""One finding, and how findings are made within a deadline."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeout
from dataclasses import asdict, dataclass
from typing import Any, Literal, TypeVar

T = TypeVar("T")

USAGE = 2
PEER = 4
CHECKPOINT = 6


@dataclass(frozen=True, kw_only=True)
class Check:
    """One finding.

    Attributes:
        name: what was looked at.
        state: "fail" is what a job would fail for; "warn" is what may be meant.
        text: what was found, and what to do where that is not all right.
        exit_code: of the doctor, if this is the first failure; the one that the job would end with.
    """

    name: str
    state: Literal["ok", "warn", "fail"]
    text: str
    exit_code: int = 0

    def record(self) -> dict[str, Any]:
        """Returns it for programs."""
        return asdict(self)


def ok(name: str, text: str) -> Check:
    """Finds nothing to do."""
    return Check(name=name, state="ok", text=text)


def warn(name: str, text: str) -> Check:
    """Finds something that may be meant."""
    return Check(name=name, state="warn", text=text)


def fail(name: str, text: str, exit_code: int) -> Check:
    """Finds something that a job would fail for, with that exit code."""
    return Check(name=name, state="fail", text=text, exit_code=exit_code)


def within(seconds: float, work: Callable[[], T]) -> T:
    """Returns what `work` does, which may have no deadline of its own: it is left behind in a thread that may not end.

    Raises:
        TimeoutError: it took longer.
    """
    return all_within(seconds, [work])[0]


def all_within(seconds: float, works: Sequence[Callable[[], T]]) -> list[T]:
    """Does several things at the same time; raises what one of them raised, or TimeoutError."""
    futures: list[Future[T]] = [Future() for _ in works]

    def run(future: Future[T], work: Callable[[], T]) -> None:
        try:
            future.set_result(work())
        except BaseException as error:  # whatever it is, it is raised where the result is wanted
            future.set_exception(error)

    threads = [threading.Thread(target=run, args=each, daemon=True) for each in zip(futures, works, strict=True)]
    for thread in threads:
        thread.start()
    return [_result(future, seconds) for future in futures]


def _result(future: Future[T], seconds: float) -> T:
    try:
        return future.result(seconds)
    except FutureTimeout:
        raise TimeoutError from None
