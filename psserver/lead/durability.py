"""What has to be on the disk before the job goes on, and before it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_ps.psserver.lead.ending import Ending
from grpc_ps.psserver.lead.log import Done, Save
from grpc_ps.psserver.lead.refusal import Refusal

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.job import Job
    from grpc_ps.psserver.lead.saving import SavedPart


class Durability:
    """Has checkpoints written: of step 0 before anything is done, of the last step before anybody is told of the end.

    So there is always something to go back to, and nobody has left who would be needed to go on from there. Without
    checkpoints (`Job.saving` is None) the job ends at once. Not guarded: used by the lead's event loop alone.
    """

    def __init__(self, job: Job) -> None:
        self._job = job
        self._ending = Ending(job.limits)

    @property
    def is_ending(self) -> bool:
        """Whether the job does nothing more but wait for its last checkpoint."""
        return self._ending.done is not None

    def opened(self, now: float) -> None:
        """The job has its first values."""
        if self._job.saving is not None and self._job.training is not None:
            self._job.training.held = True
            self._write(now)

    def updated(self, step: int, now: float) -> None:
        """An update is in the log; perhaps this position is to be kept."""
        if self._job.saving is not None and self._job.saving.due(step):
            self._write(now)

    def _write(self, now: float) -> None:
        saving, training, definition = self._job.saving, self._job.training, self._job.definition
        if saving is None or training is None or definition is None:
            raise LookupError("there is nothing to save, or nowhere to save it to")
        attempt = saving.begin(training.state(), definition.settings, now)
        limits = self._job.limits
        patience = limits.last_residuals if self._ending.hurried or self._job.attendance.leavers else limits.residuals
        self._job.log.append(Save(attempt.folder, attempt.state.step, int(patience * 1000)))

    def save(self, now: float) -> int:
        """Saves this position, unless it is saved or an attempt is on its way; returns its step.

        Raises:
            Refusal: CHECKPOINT without a folder for it, NOT_OPEN without values.
        """
        job = self._job
        if job.saving is None:
            raise Refusal("CHECKPOINT", "the shards have no folder for checkpoints: start them with --checkpoint-dir")
        if job.phase != "RUNNING":
            raise Refusal("NOT_OPEN", f"no job runs here: {job.waiting_for() or 'it has ended'}")
        if job.saving.current is None and job.saving.committed != job.step:
            self._write(now)
        return job.step

    def saved(self, shard: int, part: SavedPart, now: float) -> None:
        """A shard has written its part, or could not."""
        if self._job.saving is not None and self._job.saving.report(shard, part):
            self._failed(now)

    def committed(self, folder: str, error: str, now: float) -> None:
        """The parts of an attempt have become a checkpoint, or could not."""
        saving, training = self._job.saving, self._job.training
        if saving is None or training is None or not saving.finish(folder, error, now):
            return
        if self._job.fallen:
            # What is committed is there; whatever follows is for the generation that begins from it.
            return
        if error:
            self._failed(now)
            return
        if not self.is_ending:
            training.held = False
        self._go_on(now)

    def _failed(self, now: float) -> None:
        saving = self._job.saving
        if self.is_ending:
            self._ending.failed(now)
        elif saving is not None and saving.committed is None:
            self._job.stop(Done(6, f"the first checkpoint could not be written: {saving.error}"), now)

    def tick(self, now: float) -> None:
        """Time has passed."""
        saving = self._job.saving
        if saving is None or self._job.phase != "RUNNING":
            return
        if saving.expired(now):
            self._failed(now)
        self._go_on(now)
        if not self.is_ending and saving.due_by_time(self._job.step, now):
            self._write(now)

    def end(self, done: Done, now: float, *, hurried: bool) -> bool:
        """Ends the job once its present step is safe; False if it cannot be saved, for there is nothing to save."""
        job = self._job
        if job.saving is None or job.training is None or job.phase != "RUNNING":
            return False
        self._ending.hurried |= hurried
        if not self.is_ending:
            self._ending.done = done
            job.training.held = True
            self._go_on(now)
        return True

    def _go_on(self, now: float) -> None:
        """Goes on with an end that has begun: it has come when the last step is safe, or failed to be for too long."""
        job, saving, ending = self._job, self._job.saving, self._ending
        if saving is None or ending.done is None or saving.current is not None or job.done is not None:
            return
        if saving.committed == job.step:
            job.finish(ending.done)
        elif ending.has_failed(now):
            job.finish(Done(6, f"the last checkpoint, of step {job.step}, could not be written: {saving.error}"))
        elif ending.may_try(now):
            self._write(now)
