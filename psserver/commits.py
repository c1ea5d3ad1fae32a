"""Checkpoints that are made of what the shards have written."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path
from typing import TYPE_CHECKING

from grpc_ps.client.shared.errors import CheckpointError, PeerLost
from grpc_ps.client.shared.logs import event
from grpc_ps.psserver.checkpoint_keeper import CheckpointKeeper, manifest_of
from grpc_ps.psserver.lead.resuming import gone_back_to
from grpc_ps.psserver.lead.saving import Attempt

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.coordinator import Coordinator
    from grpc_ps.psserver.lead.job import Job
    from grpc_ps.psserver.lead.resuming import Restored

LOOK_SECONDS = 0.02
"""Between two looks whether a checkpoint is committed."""

logger = logging.getLogger(__name__)


class Commits:
    """Commits checkpoints beside the decisions, and tells those how it went.

    Not guarded: used by the lead's event loop alone.

    Args:
        keeper: the folder.
    """

    def __init__(self, lead: Coordinator, keeper: CheckpointKeeper) -> None:
        self.keeper = keeper
        self._lead = lead

    def look(self) -> None:
        """Has those committed whose parts are written on all shards, and what failed removed."""
        job, spec, background = self._lead.job, self._lead.spec, self._lead.background
        if job.saving is None or spec is None or job.fallen:
            return
        if (attempt := job.saving.to_commit()) is not None:
            background.start(self._commit(job, attempt, spec.plan_fingerprint))
        for folder in job.saving.to_discard():
            background.start(self.keeper.discard(folder))

    async def _commit(self, job: Job, attempt: Attempt, plan_fingerprint: str) -> None:
        """Makes a checkpoint of the parts that the shards have written."""
        manifest = manifest_of(job, attempt, plan_fingerprint)
        step, error = attempt.state.step, ""
        try:
            path = await self.keeper.commit(attempt, manifest)
        except CheckpointError as failure:
            error = str(failure)
            event(logger, "checkpoint_failed", logging.WARNING, global_step=step, why=error)
        else:
            seconds = self._lead.now() - attempt.begun
            event(logger, "checkpoint", global_step=step, path=path, seconds=f"{seconds:.3f}")
        if job is self._lead.job:
            self._lead.act(lambda now: job.committed(attempt.folder, error, now))
            # A shard that waits for that to leave is told now.
            self._lead.following.wake()

    async def newest(self, fallen: Job) -> Restored | None:
        """What a job goes on from that a shard has lost; None if nothing has been saved yet.

        Raises:
            CheckpointError: what was saved is not there any more, or is not read in time.
        """
        patience, saving, folder = fallen.limits.recovery, fallen.saving, self.keeper.directory
        try:
            restored = await asyncio.wait_for(self.keeper.newest(cold=False), patience)
        except asyncio.TimeoutError:
            raise CheckpointError(f"{folder}: no checkpoint could be read within {patience:g} s") from None
        if restored is None and saving is not None and saving.committed is not None:
            raise CheckpointError(f"{folder}: the checkpoint of step {saving.committed} is gone")
        return restored and gone_back_to(restored, fallen.restored)

    async def save(self, seconds: float) -> tuple[int, Path]:
        """Saves the present step, unless it is saved, and waits for that; returns the step and where it is.

        Raises:
            CheckpointError: it could not be written. PeerLost: not in time.
        """
        deadline = time.monotonic() + seconds
        lead = self._lead
        step = lead.act(lead.job.durability.save)
        saving = lead.job.saving
        assert saving is not None, "a job that can be saved has a plan for it"
        failures = saving.failures
        while saving.committed is None or saving.committed < step:
            if saving.failures > failures:
                raise CheckpointError(saving.error)
            if saving is not lead.job.saving or lead.job.done is not None:
                raise PeerLost(f"step {step} was not saved: the job has gone back to a checkpoint, or ended")
            if time.monotonic() > deadline:
                raise PeerLost(f"the checkpoint of step {step} was not committed within {seconds:g} s")
            await asyncio.sleep(LOOK_SECONDS)
            if saving.current is None and lead.job.phase == "RUNNING" and (saving.committed or 0) < step:
                # Another one was on its way when this was asked for.
                step = lead.act(lead.job.durability.save)
        return saving.committed, self.keeper.path(saving.committed)
