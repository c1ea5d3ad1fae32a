"""Virtual time: an agenda of events, and pipes that deliver messages in order after random delays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[..., None]

TRACE = 80
"""Events that are remembered for the report of a failure."""


class Agenda:
    """Events by time; those of one time happen in the order in which they were entered.

    Attributes:
        now: virtual seconds.
        events: how many have happened: messages delivered, timers, faults.
        trace: the last ones.
    """

    __slots__ = ("_heap", "_order", "events", "now", "trace")

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self.trace: deque[Event] = deque(maxlen=TRACE)
        self._heap: list[Event] = []
        self._order = 0

    def at(self, when: float, action: Action, *args: Any) -> None:
        """Enters an event."""
        self.enter(when, None, action, args)

    def after(self, delay: float, action: Action, *args: Any) -> None:
        """Enters an event `delay` seconds from now."""
        self.enter(self.now + delay, None, action, args)

    def enter(self, when: float, pipe: Pipe | None, action: Action, args: tuple[Any, ...]) -> None:
        """Enters an event that does not happen if `pipe` is cut before."""
        self._order += 1
        heappush(self._heap, (when, self._order, pipe, action, args))

    def run(self, going: Callable[[], bool]) -> None:
        """Lets events happen; every 64 of them it asks whether to go on."""
        heap, remember = self._heap, self.trace.append
        while heap and going():
            for _ in range(min(64, len(heap))):
                event = heappop(heap)
                self.now, _, pipe, action, args = event
                if pipe is None or not pipe.cut:
                    remember(event)
                    self.events += 1
                    action(*args)


class Pipe:
    """One direction of a link: messages arrive in the order in which they were sent, until it is cut.

    Args:
        random: draws from [0, 1).
        delay: seconds that most messages take at most; one in thirty takes up to ten times as long.
    """

    __slots__ = ("_agenda", "_delay", "_last", "_random", "cut")

    def __init__(self, agenda: Agenda, random: Callable[[], float], delay: float) -> None:
        self._agenda = agenda
        self._random = random
        self._delay = delay
        self._last = 0.0
        self.cut = False

    def send(self, action: Action, *args: Any) -> None:
        """Delivers a message by calling `action` when it arrives."""
        if self.cut:
            return
        draw = self._random()
        when = self._agenda.now + draw * self._delay * (10.0 if draw > 0.967 else 1.0)
        if when < self._last:
            when = self._last
        self._last = when
        self._agenda.enter(when, self, action, args)


Event = tuple[float, int, Pipe | None, Action, tuple[Any, ...]]
