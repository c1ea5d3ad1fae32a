"""Virtual time: an agenda of events, and pipes that deliver messages in order after random delays."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from heapq import heappop, heappush
from typing import Any

Action = Callable[..., None]

TRACE = 80
"""Events that are remembered for the report of a failure."""


class Life:
    """Of a process, or of what it does within one generation: once `cut`, nothing that was entered for it happens."""

    __slots__ = ("cut",)

    def __init__(self) -> None:
        self.cut = False


class Agenda:
    """Events by time; those of one time happen in the order in which they were entered.

    Attributes:
        now: virtual seconds.
        heap, order: the events to come, and how many were entered.
        events: how many have happened: messages delivered, timers, faults.
        trace: the last ones.
    """

    __slots__ = ("events", "heap", "now", "order", "trace")

    def __init__(self) -> None:
        self.now = 0.0
        self.events = 0
        self.trace: deque[Event] = deque(maxlen=TRACE)
        self.heap: list[Event] = []
        self.order = 0

    def at(self, when: float, action: Action, *args: Any) -> None:
        """Enters an event."""
        self.enter(when, None, action, args)

    def after(self, delay: float, action: Action, *args: Any) -> None:
        """Enters an event `delay` seconds from now."""
        self.enter(self.now + delay, None, action, args)

    def enter(self, when: float, life: Pipe | Life | None, action: Action, args: tuple[Any, ...] = ()) -> None:
        """Enters an event that does not happen if `life` is cut before."""
        self.order += 1
        heappush(self.heap, (when, self.order, life, action, args))

    def run(self, going: Callable[[], bool]) -> None:
        """Lets events happen; every 64 of them it asks whether to go on."""
        heap, remember = self.heap, self.trace.append
        while heap and going():
            for _ in range(min(64, len(heap))):
                event = heappop(heap)
                self.now, _, life, action, args = event
                if life is None or not life.cut:
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
        draw, agenda = self._random(), self._agenda
        when = agenda.now + draw * self._delay * (10.0 if draw > 0.967 else 1.0)
        if when < self._last:
            when = self._last
        self._last = when
        agenda.order = order = agenda.order + 1
        heappush(agenda.heap, (when, order, self, action, args))


Event = tuple[float, int, Pipe | Life | None, Action, tuple[Any, ...]]
