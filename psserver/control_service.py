"""The service Control: what psctl calls."""

from __future__ import annotations

import time
from typing import Any

from grpc_ps.client.shared.endings import STOPPED
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.protos import control_pb2 as wire
from grpc_ps.protos import parameter_server_pb2 as worker_wire
from grpc_ps.psserver.followers import FollowerLink
from grpc_ps.psserver.job_messages import caller_of, job_status, list_message, submission_of, told_message
from grpc_ps.psserver.lead.activity import activity
from grpc_ps.psserver.lead.coordinator import Coordinator
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.steering import Change
from grpc_ps.psserver.messages import held_messages, times_message
from grpc_ps.psserver.replay import Replay
from grpc_ps.psserver.standing_calls import StandingCalls
from grpc_ps.psserver.worker_service import MAX_WAIT, lead_of

MAX_WAIT_MS = 600_000


class ControlService:
    """Shows and steers the job."""

    def __init__(self, coordinator: Coordinator | None, replay: Replay, address: str) -> None:
        self._coordinator = coordinator
        self._replay = replay
        self._address = address

    async def Status(self, request: wire.StatusRequest, context: Any) -> wire.StatusResponse:
        """See `control.proto`."""
        lead = lead_of(self._coordinator)
        job = lead.job
        now = lead.now()
        return wire.StatusResponse(
            run=self._replay.identity.run,
            generation=self._replay.identity.generation,
            phase=f"PHASE_{job.phase}",
            global_step=job.step,
            job=lead.present_spec if job.opened else None,
            shards=self._shards(lead),
            workers=[_worker_status(member, now, job) for member in job.members],
            opened=job.opened,
            uptime_ms=int((time.monotonic() - lead.started_at) * 1000),
            waiting_for=lead.waiting_for(),
            learning_rate=job.training.learning_rate if job.training else 0.0,
            **_steered(job),
            evaluation=_evaluation(job),
            position=job.log.position,
            exit_code=job.done.exit_code if job.done else 0,
            reason=job.done.reason if job.done else "",
            checkpoint=_checkpoint(lead, now),
            rollbacks=lead.rollbacks,
            job_number=lead.jobs.present_number,
            takes_jobs=lead.jobs.plan is not None,
            **_tally(job),
        )

    async def Set(self, request: wire.SetRequest, context: Any) -> wire.SetResponse:
        """See `control.proto`."""
        lead = lead_of(self._coordinator)
        lead.change(Change(**{field.name: value for field, value in request.ListFields()}))
        job, spec = lead.job, lead.present_spec
        return wire.SetResponse(
            global_step=job.step,
            position=job.log.position,
            settings=spec.settings if spec else None,
            **_steered(job),
        )

    def _shards(self, lead: Coordinator) -> list[wire.ShardStatus]:
        job = lead.job
        shards = [wire.ShardStatus(shard=0, address=self._address, connected=True, position=self._replay.position)]
        shards += [
            wire.ShardStatus(shard=it.shard, address=it.address, connected=it.lost_at is None, position=it.position)
            for it in job.shards
        ]
        for status in shards:
            self._tell_of(status, lead.following.link(status.shard))
        if job.opened and self._replay.plan is not None:
            for status in shards:
                plan = self._replay.plan
                status.blocks = len(plan.placement.shards[status.shard])
                status.value_bytes = plan.bytes_on(status.shard)
        return shards

    def _tell_of(self, status: wire.ShardStatus, link: FollowerLink | None) -> None:
        """Adds what a shard has told, over its link if it is not this one."""
        if status.shard and link is None:
            return
        times, tables = times_message(self._replay.times), held_messages(self._replay.tables)
        if link is not None:
            times, tables = link.times, list(link.tables)
        if times.ByteSize():
            status.times.CopyFrom(times)
        status.tables.extend(tables)

    async def StopJob(self, request: wire.StopJobRequest, context: Any) -> wire.StopJobResponse:
        """See `control.proto`."""
        lead = lead_of(self._coordinator)
        lead.stop(Done(0, STOPPED))
        return wire.StopJobResponse(global_step=lead.job.step)

    async def Checkpoint(self, request: wire.CheckpointRequest, context: Any) -> wire.CheckpointResponse:
        """See `control.proto`."""
        lead = lead_of(self._coordinator)
        if lead.commits is None:
            raise CheckpointError("the shards have no folder for checkpoints: start them with --checkpoint-dir")
        step, path = await lead.commits.save(min(request.wait_ms, MAX_WAIT_MS) / 1000)
        return wire.CheckpointResponse(global_step=step, path=str(path))

    async def SubmitJob(self, request: wire.SubmitJobRequest, context: Any) -> wire.SubmitJobResponse:
        """See `control.proto`."""
        jobs = lead_of(self._coordinator).jobs
        return wire.SubmitJobResponse(number=await jobs.submit(submission_of(request.job)))

    async def ListJobs(self, request: wire.ListJobsRequest, context: Any) -> wire.ListJobsResponse:
        """See `control.proto`."""
        lead = lead_of(self._coordinator)
        return list_message(lead.jobs, request.number, lead.now(), lead.generation, lead.waiting_for())

    async def CancelJob(self, request: wire.CancelJobRequest, context: Any) -> wire.CancelJobResponse:
        """See `control.proto`."""
        lead = lead_of(self._coordinator)
        job = lead.jobs.cancel(request.number)
        return wire.CancelJobResponse(job=job_status(lead.jobs, job, lead.generation, ""))

    async def AwaitJob(self, request: wire.AwaitJobRequest, context: Any) -> wire.AwaitJobResponse:
        """See `control.proto`."""
        jobs = lead_of(self._coordinator).jobs
        told = await StandingCalls(jobs).hear(caller_of(request), min(request.wait_ms / 1000, MAX_WAIT))
        return told_message(told, jobs.standing.lease, jobs.recovery)


def _steered(job: Job) -> dict[str, Any]:
    """What `Set` changes beside the settings, under the names that both answers have for it."""
    training = job.training
    return {"learning_rate_factor": training.factor if training else 1.0, "paused": bool(training and training.paused)}


def _tally(job: Job) -> dict[str, Any]:
    tally = job.members.tally
    return {"outcomes": tally.outcomes, "staleness_counts": tally.staleness_counts}


def _checkpoint(lead: Coordinator, now: float) -> wire.CheckpointStatus | None:
    saving = lead.job.saving
    if lead.commits is None or saving is None:
        return None
    return wire.CheckpointStatus(
        directory=str(lead.commits.keeper.directory),
        global_step=saving.committed,
        age_ms=int((now - saving.committed_at) * 1000) if saving.committed_at is not None else 0,
        saving=saving.current is not None,
        error=saving.error,
        restored_step=lead.job.restored_step,
    )


def _evaluation(job: Job) -> wire.Evaluation | None:
    newest = job.evaluation
    return wire.Evaluation(global_step=newest.step, metrics=newest.metrics) if newest.step >= 0 else None


def _worker_status(member: Member, now: float, job: Job) -> wire.WorkerStatus:
    outcomes = member.outcomes
    return wire.WorkerStatus(
        worker=member.worker,
        incarnation=member.incarnation,
        name=member.name,
        # What it reported, or what has come of it since.
        local_step=max(member.local_step, outcomes.total()),
        applied=outcomes["APPLIED"],
        late=outcomes["LATE"],
        non_finite=outcomes["NON_FINITE"],
        done=outcomes["DONE"],
        batch=member.batch,
        staleness=member.staleness,
        silent_ms=max(0, int((now - member.last_beat) * 1000)),
        loss=member.loss,
        applied_step=member.applied_step,
        evaluator=member.incarnation == job.evaluation.holder,
        mean_staleness=member.tally.total_staleness / max(1, outcomes["APPLIED"]),
        max_staleness=member.max_staleness,
        activity=activity(member, job.training),
        times=worker_wire.WorkerTimes(**member.times) if member.times else None,  # type: ignore[arg-type]
        held_seconds=member.held_seconds,
    )
