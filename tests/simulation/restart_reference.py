"""What a generation begins from, and what a checkpoint must have: the books of the log at that position."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from simulation.numbers import Numbers
from simulation.violation import Violation

from grpc_ps.psserver.lead.log import Open, Save
from grpc_ps.psserver.lead.saving import Attempt
from grpc_ps.psserver.lead.settings import Value

if TYPE_CHECKING:
    from simulation.disk import Disk
    from simulation.invariants import Checker


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    """The books at a position.

    Attributes:
        history: of the values of the shards.
        numbers: with every lease given back.
        could_start, has_started: enough workers were there at once; somebody got work.
        untold: batches that may be refused for good, and nobody was told yet.
        exact: the batches so far are those of an undisturbed run.
        lead_settings: as the lead's own job had them.
    """

    step: int
    history: int
    numbers: Numbers
    settings: Mapping[str, Value]
    factor: float
    paused: bool
    could_start: bool
    has_started: bool
    untold: set[int]
    exact: bool
    lead_settings: Mapping[str, Value]


class RestartReference:
    """The rules of checkpoints within one generation.

    Attributes:
        committed: step of the newest checkpoint of this generation, or that it began from; None before the first.
        known: the newest that the lead has heard of, before it gave that attempt up.
        failing_since: when the attempts began to fail without a success since; None if the last one did not. One that
            nothing was heard of has failed when its time was over.
        name: the checkpoint that the generation has to begin from; empty for initial values.
    """

    def __init__(self, checker: Checker, disk: Disk, *, durable: bool, cold: bool) -> None:
        whole = disk.whole()
        self.name = whole[-1].name if whole else ""
        self.committed = whole[-1].state.step if whole else None
        self.known = self.committed
        self.failing_since: float | None = None
        self._checker = checker
        self._disk = disk
        self._durable = durable
        self._saves: dict[str, Beginning] = {}
        self._current, self._begun = "", 0.0
        self._stopped = not cold and checker.world.lead.stopped

    def demand_not_stopped(self) -> None:
        """An update is made: nobody has ended the job before this generation of the process began."""
        if self._stopped:
            raise Violation("stop-forgotten", f"the job was stopped, and comes to step {self._checker.step + 1}")

    def demand_begin(self, entry: Open) -> None:
        """The first entry of a generation gives it the right state."""
        if entry.push is not None and self.name:
            raise Violation("begins-from", f"initial values are taken, and {self.name} is there")
        if entry.push is None and (entry.checkpoint, entry.step) != (self.name, self._checker.step):
            raise Violation("begins-from", f"{entry}; the newest whole checkpoint is {self.name or 'none'}")

    def demand_work(self) -> None:
        """Somebody gets work: there is something to go back to."""
        if self._durable and self.committed is None:
            raise Violation("unsaved", "work is given before the first checkpoint is committed")

    def saving(self, entry: Save) -> None:
        """A position is to be saved."""
        checker = self._checker
        if entry.step != checker.step:
            raise Violation("saved-state", f"{entry} at step {checker.step}")
        self.expire()
        self._current, self._begun = entry.folder, checker.world.agenda.now
        self._saves[entry.folder] = checker.beginning()

    def committing(self, attempt: Attempt) -> Beginning:
        """All parts of an attempt are reported: they are what the log gives at its position."""
        saved, state = self._saves.get(attempt.folder), attempt.state
        if saved is None:
            raise Violation("saved-state", f"{attempt.folder} is committed, and no entry of this generation names it")
        numbers = saved.numbers
        numbers.retire((numbers.freed - set(state.returned)) & saved.untold)
        right = (saved.step, numbers.cursor, tuple(sorted(numbers.freed)), saved.factor, saved.paused)
        if (state.step, state.cursor, state.returned, state.factor, state.paused) != right:
            raise Violation("saved-state", f"{attempt.folder} has {state}, the log gives {right}")
        if not saved.has_started <= state.started <= saved.could_start:
            raise Violation("saved-state", f"{attempt.folder} has {state}: started {saved.has_started}")
        if attempt.settings != saved.lead_settings:
            raise Violation("saved-state", f"{attempt.folder} has settings of another position")
        parts = self._disk.parts(attempt.folder)
        for shard in range(self._checker.world.scenario.shards):
            reported = attempt.parts[shard].sha256
            if parts.get(shard) != saved.history or reported != str(saved.history):
                raise Violation(
                    "saved-parts", f"shard {shard} has {parts.get(shard)} in {attempt.folder}: {saved.history}"
                )
        return saved

    def committed_one(self, step: int) -> None:
        """An attempt is a checkpoint now."""
        self.committed = step if self.committed is None else max(step, self.committed)

    def heard_of(self, step: int) -> None:
        """The lead is told that, in time."""
        self.known = step if self.known is None else max(step, self.known)
        self.failing_since, self._current = None, ""

    def failed(self, folder: str, now: float) -> None:
        """An attempt has come to nothing."""
        if folder == self._current:
            self.failing_since = now if self.failing_since is None else self.failing_since
            self._current = ""

    def expire(self) -> None:
        """Nothing was heard of the present attempt: perhaps its time is over."""
        world = self._checker.world
        end = self._begun + world.limits.save
        if self._current and end <= world.agenda.now:
            self.failed(self._current, end)

    def demand_saved_end(self) -> None:
        """The job ends well: its last step is safe."""
        checker = self._checker
        if self._durable and checker.opened and self.committed != checker.step:
            raise Violation("unsaved-end", f"the end is told at step {checker.step}, and {self.committed} is committed")
