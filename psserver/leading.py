"""What makes shard 0 the lead: the job that it begins or goes on with."""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from grpc_ps.client.shared.checkpoint_format import At
from grpc_ps.client.shared.errors import CheckpointError, PsError, UsageError
from grpc_ps.client.shared.logs import event
from grpc_ps.psserver.checkpoint_keeper import CheckpointKeeper, logger
from grpc_ps.psserver.config import ShardConfig
from grpc_ps.psserver.jobs import CLOSE_SECONDS
from grpc_ps.psserver.lead.coordinator import Coordinator
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.queue import Queue, QueuedJob
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.resuming import Restored, restated
from grpc_ps.psserver.lead.saving import SavePlan
from grpc_ps.psserver.lead.settings import Settings
from grpc_ps.psserver.queue_file import Kept, job_folder
from grpc_ps.psserver.queue_plan import NewJob, QueuePlan
from grpc_ps.psserver.refusals import error_of
from grpc_ps.psserver.replay import Replay


async def make_lead(
    config: ShardConfig, replay: Replay, at: At, on_failure: Callable[[BaseException], None]
) -> Coordinator:
    """Takes the folder of checkpoints, if there is one, and begins the job, from a checkpoint where it has any.

    Raises:
        UsageError: presets that are not possible.
        CheckpointError: the folder is another lead's, cannot be used, or is of another job.
    """
    keeper = CheckpointKeeper(config.checkpoints, at) if config.checkpoints is not None else None
    try:
        return await _begin(config, replay, keeper, on_failure)
    except BaseException as error:
        if keeper is not None:
            await keeper.close(CLOSE_SECONDS)
        if isinstance(error, Refusal):
            raise _refused(error) from error
        raise


@dataclass(frozen=True, kw_only=True)
class _Start:
    """What the lead begins with: a job, its run, its folder of checkpoints, and the one to go on from."""

    new_job: NewJob
    run: int
    keeper: CheckpointKeeper | None = None
    restored: Restored | None = None


async def _begin(
    config: ShardConfig, replay: Replay, keeper: CheckpointKeeper | None, on_failure: Callable[[BaseException], None]
) -> Coordinator:
    run, kept = secrets.randbits(63) | 1, Kept(queue=Queue())
    if keeper is not None:
        run = await keeper.take(run)
        if config.checkpoints is not None and not (config.checkpoints.steps or config.checkpoints.seconds):
            event(logger, "checkpoints", saved="at step 0 and at the end only: --checkpoint-steps N for more")
        if config.keep_alive:
            kept = await keeper.read_queue()
    start = await (_resumed(config, keeper, kept) if keeper and kept.run else _first(config, keeper, run))
    if start.restored is not None and start.keeper is not None:
        step = start.restored.state.step
        event(logger, "resumed", checkpoint=start.keeper.path(step), global_step=step)
    return Coordinator(
        start.new_job,
        replay,
        config.chunk_bytes,
        on_failure,
        run=start.run,
        generation=secrets.randbits(63) | 1,
        checkpoints=start.keeper,
        folder=keeper,
        restored=start.restored,
        queue=_queue(config, keeper, run, kept) if config.keep_alive else None,
    )


async def _first(config: ShardConfig, keeper: CheckpointKeeper | None, run: int) -> _Start:
    """The job that workers bring, or brought to this folder."""
    restored = await keeper.newest(cold=True) if keeper is not None else None
    run = restored.run if restored is not None else run
    return _Start(new_job=_new_job(config, config.presets), run=run, keeper=keeper, restored=restored)


async def _resumed(config: ShardConfig, folder: CheckpointKeeper, kept: Kept) -> _Start:
    """The job of the queue that was carried out when the lead before this one went; else one that nobody opens.

    That has the last run, which the other shards know.
    """
    idle = _Start(new_job=_new_job(config, config.presets, queued=True), run=kept.run, keeper=folder)
    job = kept.queue.current
    if job is None:
        return idle
    keeper = folder.of_job(job_folder(job.number))
    try:
        run = await keeper.take(job.run)
        restored = await keeper.newest(cold=True)
    except CheckpointError as error:
        event(logger, "job_failed", logging.WARNING, job=job.number, reason=error)
        kept.queue.end(Done(error.exit_code, str(error)), job.last, time.time())
        return idle
    return _Start(new_job=_queued_job(config, job), run=run, keeper=keeper, restored=restored)


def _queue(config: ShardConfig, folder: CheckpointKeeper | None, first_run: int, kept: Kept) -> QueuePlan:
    return QueuePlan(
        presets=config.presets,
        lease=config.limits.lease,
        new_job=partial(_queued_job, config),
        recovery=config.limits.recovery if folder is not None else 0.0,
        folder=folder,
        first_run=first_run if folder is not None else 0,
        kept=kept,
    )


def _queued_job(config: ShardConfig, job: QueuedJob) -> NewJob:
    presets = {**config.presets, **job.submission.stated}
    return _new_job(config, presets, queued=True, within=f"{job_folder(job.number)}/")


def _refused(refusal: Refusal) -> PsError:
    error = error_of(refusal)
    return error if refusal.reason == "CHECKPOINT" else UsageError(error)


def _new_job(config: ShardConfig, presets: Settings, *, queued: bool = False, within: str = "") -> NewJob:
    checkpoints, plan = config.checkpoints, None
    if checkpoints is not None:
        plan = SavePlan(steps=checkpoints.steps or 0, seconds=checkpoints.seconds or 0.0, within=within)

    def new_job(run: int, generation: int, restored: Restored | None) -> Job:
        if restored is not None and restored.cold:
            # A lead that comes back with its first command line does not undo what was changed since.
            known = restored.settings, restored.opened
            news = {name: value for name, value in presets.items() if value not in [it.get(name) for it in known]}
            settings = restated(restored.settings, news, "shard 0")
            restored = replace(restored, settings=settings, opened={**restored.opened, **news})
        return Job(
            run=run,
            shard_count=config.shards,
            presets=presets,
            limits=config.limits,
            generation=generation,
            plan=plan,
            restored=restored,
            keep_alive=config.keep_alive,
            queued=queued,
        )

    return new_job
