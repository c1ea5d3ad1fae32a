"""A process that is stopped by a signal for a while."""

from __future__ import annotations

from typing import Any

from simulation.events import Agenda


class Sleep:
    """What comes for the process while it sleeps waits until it wakes; once it is `over` nothing happens any more.

    Attributes:
        until: it sleeps until then.
    """

    def __init__(self, agenda: Agenda) -> None:
        self.until = 0.0
        self.over = False
        self._agenda = agenda
        self._dreams: list[tuple[Any, tuple[Any, ...]]] = []

    def asleep(self, action: Any, *args: Any) -> bool:
        """Whether the process sleeps (then the event waits) or is gone."""
        if self.over:
            return True
        if self._dreams or self._agenda.now < self.until:
            if not self._dreams:
                self._agenda.at(self.until, self._wake)
            self._dreams.append((action, args))
            return True
        return False

    def _wake(self) -> None:
        if self._agenda.now < self.until:  # stopped once more meanwhile
            self._agenda.at(self.until, self._wake)
            return
        dreams, self._dreams = self._dreams, []
        for action, args in dreams:
            action(*args)
