"""When a checkpoint is written, and what has become of it."""

from __future__ import annotations

from dataclasses import dataclass, field

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.settings import Settings

RETRY_SECONDS = 1.0
"""Between two attempts to write the last checkpoint."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SavePlan:
    """How often checkpoints are written; zero means not for that reason.

    Attributes:
        steps: whenever the global step is a multiple of it.
        seconds: so long after the last one was begun, if there has been an update since.
        within: what stands before the names of folders: a job of the queue has a folder of its own, "job-0001/".
    """

    steps: int = 0
    seconds: float = 0.0
    within: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingState:
    """What a checkpoint has of the decisions.

    Attributes:
        step: the global step.
        cursor, returned: the batch numbers that are left: see `BatchNumbers`. Leases are among the returned ones.
        factor: what the learning rate of the schedule is multiplied with.
        paused: whether nobody gets work.
        started: whether enough workers had joined.
    """

    step: int = 0
    cursor: int = 0
    returned: tuple[int, ...] = ()
    factor: float = 1.0
    paused: bool = False
    started: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedPart:
    """A shard's report: the file that it wrote into `folder`, or why it could not."""

    folder: str
    file: str = ""
    size: int = 0
    sha256: str = ""
    error: str = ""


@dataclass(slots=True, kw_only=True)
class Attempt:
    """A checkpoint on its way to the disk; `state` and `settings` are those of its position, `parts` are by shard."""

    folder: str
    state: TrainingState
    settings: Settings
    begun: float
    parts: dict[int, SavedPart] = field(default_factory=dict)
    committing: bool = False


class Saving:
    """One attempt at a time: parts are written on all shards, then the lead commits them.

    Not guarded: used by the lead's event loop alone. Writing and committing are done by others, who report.

    Attributes:
        current: the attempt that is on its way, if any.
        committed: global step of the newest checkpoint, None before the first; `committed_at` is when that was.
        error: why the last attempt failed, empty if it did not.
        attempts: how many there were, and `failures` how many of them failed.

    Args:
        plan: when to save.
        limits: `save` is how long an attempt may take.
        shard_count: parts of a checkpoint.
        generation: the lead's; folders are named after it, so that late writers of another one do no harm.
        committed: step of the checkpoint that this generation began from, None if it began without.
    """

    def __init__(
        self, plan: SavePlan, limits: Limits, shard_count: int, generation: int, committed: int | None = None
    ) -> None:
        self.current: Attempt | None = None
        self.committed = committed
        self.committed_at: float | None = None
        self.error = ""
        self.attempts = self.failures = 0
        self._plan = plan
        self._limits = limits
        self._shard_count = shard_count
        self._generation = generation
        self._failed: list[str] = []
        self._last = 0.0

    def due(self, step: int) -> bool:
        """Whether the update to `step` is to be saved; not while another attempt is on its way."""
        return self.current is None and bool(self._plan.steps) and step % self._plan.steps == 0

    def due_by_time(self, step: int, now: float) -> bool:
        """Whether so much time has passed that `step` is to be saved."""
        if not self._last:
            # This generation began from a checkpoint: its time begins now.
            self._last = now
        late = bool(self._plan.seconds) and now - self._last >= self._plan.seconds
        return late and self.current is None and step != self.committed

    def begin(self, state: TrainingState, settings: Settings, now: float) -> Attempt:
        """Begins an attempt."""
        self.attempts += 1
        self._last = now
        folder = f"{self._plan.within}.saving-{state.step:08d}-{self._generation:016x}-{self.attempts}"
        self.current = Attempt(folder=folder, state=state, settings=settings, begun=now)
        return self.current

    def report(self, shard: int, part: SavedPart) -> bool:
        """Takes a shard's report; returns whether it ends the attempt, for the part could not be written."""
        attempt = self.current
        if attempt is None or attempt.folder != part.folder or attempt.committing:
            return False
        if part.error:
            self.fail(f"shard {shard}: {part.error}")
            return True
        attempt.parts[shard] = part
        return False

    def to_commit(self) -> Attempt | None:
        """The attempt whose parts are all written, once."""
        attempt = self.current
        if attempt is None or attempt.committing or len(attempt.parts) < self._shard_count:
            return None
        attempt.committing = True
        return attempt

    def finish(self, folder: str, error: str, now: float) -> bool:
        """Notes that the commit has ended; returns whether that was the present attempt's."""
        attempt = self.current
        if attempt is None or attempt.folder != folder:
            return False
        if error:
            self.fail(error)
        else:
            self.current, self.error = None, ""
            self.committed, self.committed_at = attempt.state.step, now
        return True

    def to_discard(self) -> list[str]:
        """Folders of attempts that failed, once each: what they take up is of no use."""
        folders, self._failed = self._failed, []
        return folders

    def fail(self, error: str) -> None:
        """Gives the present attempt up."""
        if self.current is not None:
            self._failed.append(self.current.folder)
        self.current, self.error = None, error
        self.failures += 1

    def expired(self, now: float) -> bool:
        """Whether the attempt takes too long; it is given up then, even if the disk comes back later."""
        attempt = self.current
        if attempt is None or now - attempt.begun <= self._limits.save:
            return False
        self.fail(f"step {attempt.state.step} was not written within {self._limits.save:g} s")
        return True
