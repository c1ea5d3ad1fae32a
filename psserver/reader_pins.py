"""The snapshots that this shard keeps for readers."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from grpc_ps.psserver.snapshot import Snapshot
from grpc_ps.psserver.table_memory import TableView


@dataclass(frozen=True, slots=True)
class Pinned:
    """A position for readers: the values, and the tables as they were there."""

    snapshot: Snapshot
    tables: Sequence[TableView]


class ReaderPins:
    """Pinned snapshots by name, each until a reader has had it or its time is over.

    What is being read goes on after that. Not guarded: used by the event loop alone.

    Args:
        on_read: told the name of each snapshot that is let go of before its time is over: the lead, which knows when
            that is, makes room for another reader.
    """

    def __init__(self, on_read: Callable[[int], None]) -> None:
        self._on_read = on_read
        self._pinned: dict[int, Pinned] = {}

    def __len__(self) -> int:
        """How many are held."""
        return len(self._pinned)

    def add(self, name: int, pinned: Pinned, seconds: float) -> None:
        """Keeps a snapshot for that long."""
        pinned.snapshot.share()
        self._pinned[name] = pinned
        asyncio.get_running_loop().call_later(seconds, self._pinned.pop, name, None)

    def get(self, name: int) -> Pinned | None:
        """The snapshot of that name, if it is here."""
        return self._pinned.get(name)

    def drop(self, name: int) -> None:
        """A reader has had it, or went away. One that is not here yet stays until its time is over."""
        if self._pinned.pop(name, None) is not None:
            self._on_read(name)
