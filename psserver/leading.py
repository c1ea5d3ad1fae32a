"""What makes shard 0 the lead: the job that it begins or goes on with."""

from __future__ import annotations

import secrets
from collections.abc import Callable
from dataclasses import replace

from grpc_ps.client.shared.checkpoint_format import At
from grpc_ps.client.shared.errors import PsError, UsageError
from grpc_ps.client.shared.logs import event
from grpc_ps.psserver.checkpoint_keeper import CheckpointKeeper, logger
from grpc_ps.psserver.config import ShardConfig
from grpc_ps.psserver.lead.coordinator import Coordinator, NewJob, error_of
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.resuming import Restored, restated
from grpc_ps.psserver.lead.saving import SavePlan
from grpc_ps.psserver.replay import Replay

CLOSE_SECONDS = 5.0


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


async def _begin(
    config: ShardConfig, replay: Replay, keeper: CheckpointKeeper | None, on_failure: Callable[[BaseException], None]
) -> Coordinator:
    run, restored = secrets.randbits(63) | 1, None
    if keeper is not None:
        run = await keeper.take(run)
        if config.checkpoints is not None and not (config.checkpoints.steps or config.checkpoints.seconds):
            event(logger, "checkpoints", saved="at step 0 and at the end only: --checkpoint-steps N for more")
        restored = await keeper.newest(cold=True)
        if restored is not None:
            run = restored.run
            event(logger, "resumed", checkpoint=keeper.path(restored.state.step), global_step=restored.state.step)
    return Coordinator(
        _new_job(config),
        replay,
        config.chunk_bytes,
        on_failure,
        run=run,
        generation=secrets.randbits(63) | 1,
        checkpoints=keeper,
        restored=restored,
    )


def _refused(refusal: Refusal) -> PsError:
    error = error_of(refusal)
    return error if refusal.reason == "CHECKPOINT" else UsageError(error)


def _new_job(config: ShardConfig) -> NewJob:
    checkpoints = config.checkpoints
    plan = SavePlan(steps=checkpoints.steps or 0, seconds=checkpoints.seconds or 0.0) if checkpoints else None

    def new_job(run: int, generation: int, restored: Restored | None) -> Job:
        if restored is not None and restored.cold:
            # A lead that comes back with its first command line does not undo what was changed since.
            known = restored.settings, restored.opened
            news = {
                name: value for name, value in config.presets.items() if value not in [it.get(name) for it in known]
            }
            settings = restated(restored.settings, news, "shard 0")
            restored = replace(restored, settings=settings, opened={**restored.opened, **news})
        return Job(
            run=run,
            shard_count=config.shards,
            presets=config.presets,
            limits=config.limits,
            generation=generation,
            plan=plan,
            restored=restored,
            keep_alive=config.keep_alive,
        )

    return new_job
