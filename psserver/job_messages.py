"""Jobs in the queue as messages of control.proto, and back."""

from __future__ import annotations

from collections.abc import Mapping

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.job_flags import JOB_FLAGS
from grpc_ps.client.shared.submission import MAX_ARGUMENTS, MAX_NAME, MAX_VALUE, OPTIONS, check_submission
from grpc_ps.protos import control_pb2 as wire
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.jobs import Jobs
from grpc_ps.psserver.lead.queue import QueuedJob, Submission
from grpc_ps.psserver.lead.standing import Ended, StandingWorker
from grpc_ps.psserver.messages import stated
from grpc_ps.psserver.standing_calls import Caller, Told

MAX_REASON = 1000
"""Characters of what a standing worker says of a failure that are kept."""


def submission_of(message: wire.JobRequest) -> Submission:
    """What a client asks for; UsageError for what no honest client does."""
    # Before anything is made of them: a message has room for half a million.
    if len(message.arguments) > MAX_ARGUMENTS:
        raise UsageError(f"--model-arg: a job has at most {MAX_ARGUMENTS} of them, not {len(message.arguments)}")
    if len(message.options) > len(OPTIONS):
        raise UsageError(f"a job brings at most {len(OPTIONS)} options, not {len(message.options)}")
    arguments, options = tuple(message.arguments), dict(message.options)
    check_submission(
        name=message.name, model=message.model, arguments=arguments, options=options, members=message.members
    )
    settings = stated(message.stated)
    for name, value in settings.items():
        if name not in JOB_FLAGS:
            raise UsageError(f"{name}: is not for a job's client to state")
        if isinstance(value, str) and len(value) > MAX_VALUE:
            raise UsageError(f"{name}: a text has at most {MAX_VALUE} characters, not {len(value)}")
    return Submission(
        name=message.name,
        model=message.model,
        arguments=arguments,
        options=options,
        stated=settings,
        members=message.members,
    )


def job_request(submission: Submission) -> wire.JobRequest:
    """The other way round."""
    return wire.JobRequest(
        name=submission.name,
        model=submission.model,
        arguments=submission.arguments,
        options=submission.options,
        stated=job_pb2.Settings(**submission.stated),  # type: ignore[arg-type]  # checked when they came
        members=submission.members,
    )


def caller_of(request: wire.AwaitJobRequest) -> Caller:
    """A standing worker that calls; UsageError for one that cannot be told from others."""
    if not request.nonce:
        raise UsageError("a standing worker without a nonce could be anybody")
    if len(request.name) > MAX_NAME:
        raise UsageError(f"name: has at most {MAX_NAME} characters, not {len(request.name)}")
    ended = request.ended if request.HasField("ended") else None
    return Caller(
        nonce=request.nonce,
        name=request.name,
        call=request.call,
        carrying=request.run if request.carrying else 0,
        ended=None if ended is None else _ended_of(ended),
        leaving=request.leaving,
    )


def _ended_of(message: wire.Carried) -> Ended:
    reason = _shown(message.reason)
    return Ended(run=message.run, exit_code=message.exit_code, reason=reason, part=message.part)


def _shown(reason: str) -> str:
    return " ".join(reason.split())[:MAX_REASON]


def told_message(told: Told, lease: float, recovery: float) -> wire.AwaitJobResponse:
    """What a standing worker is told."""
    response = wire.AwaitJobResponse(over=told.over, lease_ms=int(lease * 1000), recovery_ms=int(recovery * 1000))
    if told.job is not None:
        response.job.CopyFrom(job_request(told.job.submission))
        response.number, response.run = told.job.number, told.job.run
    if told.closing is not None:
        response.closing = True
        response.exit_code, response.reason = told.closing.exit_code, told.closing.reason
    return response


def list_message(jobs: Jobs, number: int, now: float, generation: int, waiting_for: str) -> wire.ListJobsResponse:
    """The jobs and the workers that stand by; or the one job of that number, for whoever follows it."""
    shown = [job for job in jobs.queue if number in (0, job.number)]
    runs = {job.run: job.number for job in jobs.queue if job.run}
    response = wire.ListJobsResponse(jobs=[job_status(jobs, job, generation, waiting_for) for job in shown])
    if not number:
        response.standing.extend(_standing(worker, runs, now) for worker in jobs.standing)
        response.lost.extend(_standing(worker, runs, now) for worker in jobs.standing.lost)
    return response


def _standing(worker: StandingWorker, runs: Mapping[int, int], now: float) -> wire.StandingWorker:
    return wire.StandingWorker(
        name=worker.name,
        carrying=runs.get(worker.carrying, 0),
        silent_ms=max(0, int((now - worker.last) * 1000)),
        failure=worker.failure,
        failed=runs.get(worker.tried, 0) if worker.failure else 0,
    )


def job_status(jobs: Jobs, job: QueuedJob, generation: int, waiting_for: str) -> wire.JobStatus:
    """Where a job is; `generation` and `waiting_for` are the present one's."""
    reading, present = jobs.reading(job), job is jobs.queue.current
    if not present:
        waiting_for = jobs.queued_waits_for(job) if job.state == "QUEUED" else ""
    state, code, reason = job.state, job.exit_code, job.reason
    if (done := jobs.ending(job)) is not None:
        state, code, reason = "FAILED" if done.exit_code else "DONE", done.exit_code, done.reason
    status = wire.JobStatus(
        number=job.number,
        name=job.submission.name,
        model=job.submission.model,
        state=f"STATE_{state}",
        run=job.run,
        global_step=reading.global_step,
        steps=reading.steps or int(job.submission.stated.get("steps", 0)),
        exit_code=code,
        reason=reason,
        submitted_ms=int(job.submitted * 1000),
        started_ms=None if job.started is None else int(job.started * 1000),
        ended_ms=None if job.ended is None else int(job.ended * 1000),
        workers=reading.workers,
        loss=reading.loss,
        batches=reading.batches,
        examples=reading.examples,
        running_ms=int(jobs.running_seconds * 1000) if present else 0,
        waiting_for=waiting_for,
        generation=generation if present else 0,
    )
    if reading.evaluated_step >= 0:
        status.evaluation.CopyFrom(wire.Evaluation(global_step=reading.evaluated_step, metrics=reading.metrics))
    return status
