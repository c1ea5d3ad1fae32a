"""Which ended process is started again, how often and when: the decisions behind `psctl launch --max-restarts`."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass

# Seconds before a process is started for the second time in this run, doubled each time, and the most it becomes.
_FIRST_PAUSE = 0.5
_LONGEST_PAUSE = 8.0
# A bug of ours that need not come again, and a peer that was out of reach.
_WORTH_IT = (1, 4)


@dataclass(frozen=True, slots=True)
class Restart:
    """A process that ended is about to be started again.

    Attributes:
        name: the process, for people.
        code: what it ended with; 128 + n if signal n ended it.
        count: how many restarts that makes in this run, of `maximum`.
        pause: seconds until it is started.
    """

    name: str
    code: int
    count: int
    maximum: int
    pause: float

    def __str__(self) -> str:
        pause = f", in {self.pause:g} s" if self.pause else ""
        return f"restart {self.name} ({ending(self.code)}), {self.count} of {self.maximum}{pause}"


class Restarts:
    """Counts the restarts of one run; all processes share its maximum."""

    def __init__(self, maximum: int) -> None:
        self.maximum = maximum
        self.used = 0
        self._of: Counter[str] = Counter()

    def next(self, name: str, code: int) -> Restart | None:
        """Takes a restart for a process that has ended; None if there is none left or it would end the same again."""
        if self.used >= self.maximum or not is_worth_it(code):
            return None
        before = self._of[name]
        self._of[name] += 1
        self.used += 1
        pause = min(_LONGEST_PAUSE, _FIRST_PAUSE * 2 ** min(before - 1, 9)) if before else 0.0
        return Restart(name, code, self.used, self.maximum, pause)


def is_worth_it(code: int) -> bool:
    """Whether another try may end better: not with a wrong flag, bad data, NaN or a folder that cannot be written."""
    return code in _WORTH_IT or code > 128


def is_gone(code: int) -> bool:
    """Whether the process was killed or lost its peers, which at the end of a job is nobody's fault."""
    return code == 4 or code > 128


def ending(code: int) -> str:
    """Returns what a process ended with, for people."""
    return f"signal {code - 128}" if code > 128 else f"exit code {code}"
