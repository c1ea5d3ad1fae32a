"""The folder of checkpoints: it outlives every process."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.violation import Violation

from grpc_ps.psserver.lead.saving import TrainingState
from grpc_ps.psserver.lead.settings import Settings

if TYPE_CHECKING:
    from simulation.restart_reference import Beginning

KEEP = 3


@dataclass(slots=True, kw_only=True)
class Checkpoint:
    """A committed checkpoint.

    Attributes:
        parts: the history of the values in each shard's part, by shard.
        settings, opened: the job's at its position, and at first.
        beginning: what the books had at its position.
        damaged: it does not verify any more.
    """

    name: str
    state: TrainingState
    settings: Settings
    opened: Settings
    parts: Mapping[int, int]
    beginning: Beginning
    damaged: bool = False


class Disk:
    """What is on it at each moment; a crash loses nothing that was written."""

    def __init__(self) -> None:
        self.checkpoints: dict[str, Checkpoint] = {}
        self._unfinished: dict[str, dict[int, int]] = {}

    def write(self, folder: str, shard: int, history: int) -> None:
        """A shard's part is in the folder of an attempt."""
        self._unfinished.setdefault(folder, {})[shard] = history

    def parts(self, folder: str) -> Mapping[int, int]:
        """What is in the folder of an attempt."""
        return self._unfinished.get(folder, {})

    def commit(self, checkpoint: Checkpoint) -> None:
        """The folder of an attempt becomes a checkpoint; a damaged one in its way goes, and the oldest beyond three."""
        old = self.checkpoints.get(checkpoint.name)
        if old is not None and not old.damaged:
            raise Violation("committed-twice", f"{checkpoint.name} is there, whole, and committed once more")
        self.checkpoints[checkpoint.name] = checkpoint
        for name in sorted(self.checkpoints)[:-KEEP]:
            del self.checkpoints[name]

    def whole(self) -> list[Checkpoint]:
        """Those that verify, the oldest first."""
        return [self.checkpoints[name] for name in sorted(self.checkpoints) if not self.checkpoints[name].damaged]

    def damage(self) -> bool:
        """Damages the newest, if another one is left; returns whether it did."""
        whole = self.whole()
        if len(whole) < 2:
            return False
        whole[-1].damaged = True
        return True
