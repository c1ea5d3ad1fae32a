"""The ordered log: what the lead decides, and the only thing that changes a shard."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PushId:
    """Names a push: the worker's index, its incarnation, and the push's number within that."""

    worker: int
    incarnation: int
    sequence: int


Weighted = tuple[tuple[PushId, float], ...]
"""Pushes with their shares of a mean."""


@dataclass(frozen=True, slots=True)
class Result:
    """What became of a push; `outcome` is a name of the protocol's `Outcome` without its prefix."""

    sequence: int
    outcome: str
    staleness: int = 0
    parameter: str = ""
    repeated: bool = False


@dataclass(frozen=True, slots=True)
class Release:
    """Parameters and the batch number to use them on: always together."""

    batch: int
    hint: int


@dataclass(frozen=True, slots=True)
class Done:
    """The end of the job, with the exit code of its processes and the reason where that is not zero."""

    exit_code: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """Takes the values of that push as the state, or, where there is none, the checkpoint of that name and step."""

    push: PushId | None
    checkpoint: str = ""
    step: int = 0


@dataclass(frozen=True, slots=True)
class Admit:
    """Makes a worker's streams welcome."""

    worker: int
    incarnation: int


@dataclass(frozen=True, slots=True)
class Dismiss:
    """Ends a worker's streams and drops its parts, but for push `keep` (0: none), which is in a round.

    `reason` is a refusal's name; empty when the worker left by itself.
    """

    worker: int
    incarnation: int
    reason: str = ""
    detail: str = ""
    keep: int = 0


@dataclass(frozen=True, slots=True)
class Reduce:
    """Makes the weighted mean of `pushes` and reports its squares; the next `Apply` names the same pushes."""

    pushes: Weighted


@dataclass(frozen=True, slots=True)
class Apply:
    """Applies the weighted mean of `pushes` (in order of their batch numbers) once; `step` is the step after it.

    `scales` multiply the gradients: none, one for all, or one a parameter in order of the names.
    """

    step: int
    pushes: Weighted
    learning_rate: float
    scales: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class Answer:
    """Answers a worker from this position."""

    worker: int
    incarnation: int
    step: int
    result: Result | None = None
    release: Release | None = None
    done: Done | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """Pins this position's values for a reader, for at most `keep_ms` milliseconds.

    With `averages`, the moving averages of what is trainable in place of its values.
    """

    snapshot: int
    step: int
    keep_ms: int
    averages: bool = False


@dataclass(frozen=True, slots=True)
class Save:
    """Writes this position's state as a part of a checkpoint, into `folder`.

    A shard waits for at most `patience_ms` milliseconds for what workers keep back of their pushes.
    """

    folder: str
    step: int
    patience_ms: int


@dataclass(frozen=True, slots=True)
class Stop:
    """Ends the job."""

    step: int
    done: Done


Entry = Open | Admit | Dismiss | Reduce | Apply | Answer | Pin | Save | Stop


class Log:
    """Entries with their positions, from one, kept until every follower has acknowledged them.

    Not guarded: used by the lead's event loop alone.
    """

    def __init__(self) -> None:
        self.position = 0
        self._kept: deque[Entry] = deque()

    @property
    def first(self) -> int:
        """Position of the oldest entry that is kept."""
        return self.position - len(self._kept) + 1

    def append(self, entry: Entry) -> None:
        """Writes the next entry."""
        self.position += 1
        self._kept.append(entry)

    def after(self, position: int) -> Iterator[tuple[int, Entry]]:
        """Yields the entries after `position`; LookupError if some of them are no longer kept."""
        if position + 1 < self.first or position > self.position:
            raise LookupError(f"entries after {position} are not kept ({self.first} to {self.position} are)")
        skip = position + 1 - self.first
        for place, entry in enumerate(self._kept):
            if place >= skip:
                yield self.first + place, entry

    def trim(self, position: int) -> None:
        """Forgets the entries up to `position`."""
        while self._kept and self.first <= position:
            self._kept.popleft()
