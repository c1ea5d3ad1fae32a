"""How jobs of the queue are begun, and where they are."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.newest_loss import newest_loss
from grpc_ps.psserver.checkpoint_keeper import CheckpointKeeper
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.queue import Queue, QueuedJob, Reading
from grpc_ps.psserver.lead.resuming import Restored
from grpc_ps.psserver.lead.settings import Settings
from grpc_ps.psserver.queue_file import Kept

NewJob = Callable[[int, int, Restored | None], Job]
"""Makes the job of a generation: of that run and generation, from a checkpoint if there is one."""


@dataclass(frozen=True, kw_only=True)
class QueuePlan:
    """How jobs that clients submit are begun.

    Attributes:
        presets: settings that shard 0 fixes for all of them.
        lease: seconds without a call after which a standing worker is gone.
        new_job: what makes the job of that number, of its settings and the presets.
        recovery: seconds that a lead which is gone may take to come back; 0 where nothing is saved.
        folder: that of all checkpoints, with the queue in it; None without.
        first_run: the run of that folder, of the job that workers brought before any of the queue; 0 without.
        kept: what that has.
    """

    presets: Settings
    lease: float
    new_job: Callable[[QueuedJob], NewJob]
    recovery: float = 0.0
    folder: CheckpointKeeper | None = None
    first_run: int = 0
    kept: Kept = field(default_factory=lambda: Kept(queue=Queue()))


async def taken(keeper: CheckpointKeeper, run: int) -> int:
    """Takes the folder of a job that begins; returns its run.

    Raises:
        CheckpointError: it cannot be taken, or another job's checkpoints are in it.
    """
    run = await keeper.take(run)
    if not await keeper.is_new():
        raise CheckpointError(f"{keeper.directory}: has the checkpoints of another job")
    return run


def is_idle(job: Job) -> bool:
    """Whether all shards are there, and nobody needs the present job: its end has come, or nobody has brought one.

    A shard that has not heard of the lead's present run would take the next one for a job that it has lost.
    """
    if len(job.members) or job.fallen or job.shards.missing():
        return False
    over = job.awaits_first and job.training is not None and job.training.is_over()
    return job.done is not None or job.phase == "EMPTY" or over


def reading_of(job: Job, before: Reading, gone: Sequence[tuple[float | None, int | None]]) -> Reading:
    """Where a job is.

    `gone` is what those told of their last applied pushes, as `newest_loss` has it, who left it when it was done. Where
    nobody has told a loss, it is that of before.
    """
    training, found = job.training, job.evaluation
    loss = newest_loss([*gone, *((member.loss, member.applied_step) for member in job.members)])
    return Reading(
        global_step=job.step,
        steps=int(job.definition.settings["steps"]) if job.definition is not None else 0,
        workers=len(job.members),
        loss=before.loss if loss is None else loss,
        batches=training.batches if training is not None else 0,
        examples=training.examples if training is not None else 0,
        evaluated_step=found.step,
        metrics=dict(found.metrics),
    )
