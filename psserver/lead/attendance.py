"""Shards that come and go."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_ps.psserver.lead.log import Done, Open
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.resuming import limits_rows
from grpc_ps.psserver.lead.shards import Shard

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.job import Job
    from grpc_ps.psserver.lead.resuming import Restored


class Attendance:
    """What it means for the job that a shard comes, comes back empty, or has to go.

    Not guarded: used by the lead's event loop alone.

    Args:
        restored: the checkpoint that the job begins from.
    """

    def __init__(self, job: Job, restored: Restored | None) -> None:
        self._job = job
        self._restored = restored
        self._leavers: set[int] = set()

    @property
    def leavers(self) -> list[int]:
        """Shards that were told to end, and have not been started again. What is done now would be lost with them."""
        return sorted(self._leavers)

    def follow(self, shard: int, count: int, boot: int, address: str, now: float) -> Shard:
        """A shard's link is up.

        Raises:
            Refusal: MISMATCH, FENCED, or LOST_STATE, which also ends the job; with checkpoints ROLLED_BACK instead.
        """
        job = self._job
        if job.fallen:
            raise Refusal("ROLLED_BACK", job.fallen)
        opened = (job.done is None or job.is_kept) and job.phase not in ("EMPTY", "RESTORING")
        try:
            connected = job.shards.connect(shard, count, boot, address, opened=opened)
        except Refusal as refusal:
            if refusal.reason == "LOST_STATE" and job.saving is not None:
                job.phase, job.fallen = "RESTORING", f"shard {shard} ({address}) has restarted"
                raise Refusal("ROLLED_BACK", job.fallen) from None
            if refusal.reason != "LOST_STATE":
                raise
            job.stop(Done(4, refusal.detail), now)
            if not job.queued:
                raise
            # The next job may have the shard as it is.
            connected = job.shards.connect(shard, count, boot, address, opened=False)
        # Who is told to end says so again, over each new link.
        self._leavers.discard(shard)
        self.complete()
        return connected

    def complete(self, *, limits_stated: bool = False) -> None:
        """Lets all shards take the checkpoint that the job begins from, once they are there.

        Where it has tables with a capacity the first worker may state another one, so it is waited for.
        """
        job, restored = self._job, self._restored
        if job.phase != "RESTORING" or restored is None or job.shards.missing():
            return
        if limits_stated or not job.awaits_first or not limits_rows(restored.parameters):
            job.log.append(Open(None, restored.name, job.step))
            job.phase = "RUNNING"
            job.waits.begin()

    def leaving(self, shard: int, now: float) -> None:
        """A shard was told to end, by a signal: what it has is saved, or, where that is not possible, the job ends.

        Nothing more is done until it has been started again.
        """
        job = self._job
        if job.done is not None:
            return
        self._leavers.add(shard)
        if job.saving is None or job.training is None:
            address = next((it.address for it in job.shards if it.shard == shard), "")
            job.stop(Done(4, f"shard {shard} ({address}) was told to end by a signal"), now)
        elif job.phase == "RUNNING":
            job.durability.save(now)

    def released(self, shard: int) -> bool:
        """Whether a shard that was told to end is not needed any more: what it has is in a checkpoint, or cannot be."""
        saving = self._job.saving
        if shard not in self._leavers or saving is None or saving.current is not None:
            return False
        return self._job.phase != "RUNNING" or saving.committed == self._job.step or bool(saving.error)

    def committed(self, now: float) -> None:
        """A checkpoint that was on its way has ended; for those who leave the present step is needed."""
        job, saving = self._job, self._job.saving
        if self._leavers and saving is not None and not saving.error and job.phase == "RUNNING":
            job.durability.save(now)
