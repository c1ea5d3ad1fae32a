"""When a cluster that trains is measured, told from its progress lines alone: the same for every runtime. Pure."""

from __future__ import annotations


class Window:
    """The time in which all workers train, without the beginning; rates are of the global step, so of all workers.

    Opens at the first progress line when every worker's first is `warm_up` seconds old, and closes at the first line
    that is `seconds` later.
    """

    def __init__(self, workers: int, *, warm_up: float, seconds: float) -> None:
        self._workers = workers
        self._warm_up = warm_up
        self.seconds = seconds
        self._first: dict[int, float] = {}
        self._opened: tuple[float, int] | None = None

    def add(self, now: float, worker: int, global_step: int) -> float | None:
        """Takes a line; returns the global steps per second once the window has closed."""
        self._first.setdefault(worker, now)
        if self._opened is None:
            if len(self._first) == self._workers and now >= max(self._first.values()) + self._warm_up:
                self._opened = now, global_step
            return None
        seconds = now - self._opened[0]
        return (global_step - self._opened[1]) / seconds if seconds >= self.seconds else None
