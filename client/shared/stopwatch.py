"""Where time goes: seconds by phase, added up."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from types import TracebackType
from typing import Any, TypeVar

T = TypeVar("T")
_END = object()


class Stopwatch:
    """Adds up seconds by phase, and counts what they were spent on.

    There are two ways to measure. `lap` divides one thread's time without gaps: each call takes what has passed since
    the one before. `during`, `each` and `timed` measure single pieces of work, wherever they run. All cost two calls of
    the clock at most and make no lists, so a step of a millisecond can afford them.

    Nothing is locked: each phase and each count is one thread's at a time, and whoever reads meanwhile gets numbers of
    which one may be a step behind another.

    Args:
        counts: names of what is counted.
        phases: names of what is timed.
        clock: monotonic, in seconds.
    """

    def __init__(
        self, counts: Sequence[str], phases: Sequence[str], *, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._clock = clock
        self._counts = dict.fromkeys(counts, 0)
        self._seconds = dict.fromkeys(phases, 0.0)
        self._mark = clock()

    def lap(self, phase: str) -> None:
        """Charges the time since the last lap to a phase."""
        now = self._clock()
        self._seconds[phase] += now - self._mark
        self._mark = now

    def skip(self) -> None:
        """Charges the time since the last lap to nothing."""
        self._mark = self._clock()

    def during(self, phase: str) -> _Piece:
        """Charges the body of a `with` to a phase."""
        return _Piece(self._seconds, phase, self._clock)

    def timed(self, phase: str, work: Callable[[], T]) -> T:
        """Does a piece of work and returns what it returned."""
        with self.during(phase):
            return work()

    def each(self, phase: str, items: Iterable[T]) -> Iterator[T]:
        """Yields the items; the making of each is charged to a phase, what is done with it is not."""
        iterator = iter(items)
        while True:
            with self.during(phase):
                item = next(iterator, _END)
            if item is _END:
                return
            yield item  # type: ignore[misc]  # mypy does not know that it is no `_END`

    def count(self, name: str) -> None:
        """Counts one more."""
        self._counts[name] += 1

    def clear(self) -> None:
        """Begins anew from zero."""
        self._counts = dict.fromkeys(self._counts, 0)
        self._seconds = dict.fromkeys(self._seconds, 0.0)
        self.skip()

    @property
    def totals(self) -> dict[str, Any]:
        """Counts and seconds by their names."""
        return {**self._counts, **self._seconds}


class _Piece:
    """One piece of work."""

    __slots__ = ("_begin", "_clock", "_phase", "_seconds")

    def __init__(self, seconds: dict[str, float], phase: str, clock: Callable[[], float]) -> None:
        self._seconds = seconds
        self._phase = phase
        self._clock = clock

    def __enter__(self) -> None:
        self._begin = self._clock()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._seconds[self._phase] += self._clock() - self._begin
