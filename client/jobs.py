"""The jobs that clients submit to a cluster that stands: what `psctl submit`, `jobs` and `cancel` do, from Python."""

from __future__ import annotations

import math
import os
import secrets
import socket
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import Any

from grpc_ps.client.settings import from_message, to_message
from grpc_ps.client.shard_client import ShardClient
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.flag_forms import NO_BOUND
from grpc_ps.client.shared.flags import typed
from grpc_ps.client.shared.submission import OPTIONS, check_submission
from grpc_ps.protos import control_pb2 as wire

ENDED = frozenset(("done", "failed", "cancelled"))
"""States of a job that will not change any more."""


@dataclass(frozen=True, kw_only=True)
class JobRequest:
    """What a job is: a registered model with its arguments, data, and settings.

    Attributes:
        name: for people.
        arguments: of the model, each as NAME=VALUE.
        options: flags of the worker's own, `client.shared.submission.OPTIONS`; "true" for one without a value.
        stated: settings of the job, by the names of `job.proto`.
        members: standing workers that it gets; 0 for all in async, and as many as `workers` and `backup` say in sync.
    """

    model: str
    name: str = ""
    arguments: tuple[str, ...] = ()
    options: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    stated: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    members: int = 0

    def message(self) -> wire.JobRequest:
        """Makes the message. Raises UsageError for what cannot be submitted."""
        parts: dict[str, Any] = {
            "name": self.name,
            "model": self.model,
            "arguments": self.arguments,
            "options": self.options,
            "members": self.members,
        }
        check_submission(**parts)
        try:
            return wire.JobRequest(**parts, stated=to_message(self.stated))
        except (ValueError, TypeError) as error:
            raise UsageError(f"settings of the job: {error}") from None

    def flags(self) -> list[str]:
        """The flags of the worker that carries it out, beside those which say who that worker is."""
        stated = {**self.stated}
        if stated.get("max_staleness") == NO_BOUND:
            stated["max_staleness"] = "none"
        options = {name: value if OPTIONS[name] else True for name, value in self.options.items()}
        return typed({"model": self.model, "model_arg": self.arguments, **options, **stated})


def request_of(message: wire.JobRequest) -> JobRequest:
    """Converts what the lead hands out. Raises UsageError for what no lead takes."""
    request = JobRequest(
        model=message.model,
        name=message.name,
        arguments=tuple(message.arguments),
        options=dict(message.options),
        stated=from_message(message.stated),
        members=message.members,
    )
    request.message()
    return request


@dataclass(frozen=True, kw_only=True)
class JobStatus:
    """A job in the queue.

    Attributes:
        state: queued, starting, running, done, failed or cancelled.
        run: its run id, 0 before it starts.
        steps: global step at which it ends, 0 where that is not known.
        exit_code: of one that has ended; 7 if it was cancelled. `reason` says why, if not just by its target.
        submitted_ms, started_ms, ended_ms: Unix times in milliseconds, None before.
        workers: its members.
        loss: mean of their newest applied pushes, as `client.shared.newest_loss` says.
        batches, examples: gradients that were applied, and the examples in them, within `running_ms` milliseconds of
            this generation of the lead.
        metrics: of the newest evaluation, at `evaluated_step`; None before the first.
    """

    number: int
    name: str
    model: str
    state: str
    run: int
    global_step: int
    steps: int
    exit_code: int
    reason: str
    submitted_ms: int
    started_ms: int | None
    ended_ms: int | None
    workers: int
    loss: float | None
    batches: int
    examples: int
    running_ms: int
    waiting_for: str
    generation: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    evaluated_step: int | None = None

    @property
    def has_ended(self) -> bool:
        """Whether nothing of it will change any more."""
        return self.state in ENDED

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON, None for a loss or a metric that is not finite."""
        metrics = {name: _finite(value) for name, value in self.metrics.items()}
        return {**asdict(self), "loss": _finite(self.loss), "metrics": metrics}


@dataclass(frozen=True, kw_only=True)
class StandingWorker:
    """A worker that stands by.

    Attributes:
        carrying: number of the job that it carries out, 0 if none.
        silent_ms: milliseconds since it was last heard of.
        failure: the last words of its last failure, if any, and `failed` the number of the job of that.
    """

    name: str
    carrying: int
    silent_ms: int
    failure: str
    failed: int = 0


@dataclass(frozen=True, kw_only=True)
class Carried:
    """How a process that carried a job out has ended: 128 + n after signal n; `reason` has its last words.

    `part` counts these processes from 1 on, so that one whose end is told again counts once.
    """

    number: int
    run: int
    exit_code: int
    reason: str = ""
    part: int = 0


@dataclass(frozen=True, kw_only=True)
class Assignment:
    """What a standing worker is told.

    Attributes:
        job: what to carry out, as job `number` of that `run`; None if nothing.
        over: what it carries out is over.
        closing: the cluster ends, with `exit_code` and `reason`.
        lease: seconds without a call after which the lead forgets it.
        recovery: seconds that a lead which is gone may take to come back; 0 where it cannot.
    """

    job: JobRequest | None = None
    number: int = 0
    run: int = 0
    over: bool = False
    closing: bool = False
    exit_code: int = 0
    reason: str = ""
    lease: float = 0.0
    recovery: float = 0.0


class JobQueue:
    """The queue of a cluster's lead. Every call raises PeerUnreachable or PeerLost if the lead does not answer, NotLead
    if the first address is not shard 0's, and what is said below.
    """

    def __init__(self, lead: ShardClient) -> None:
        self._lead = lead
        self._nonce = secrets.randbits(63) | 1
        self._name = f"{socket.gethostname()}:{os.getpid()}"[:100]
        self._calls = 0

    def submit(self, job: JobRequest) -> int:
        """Puts a job behind those that wait and returns its number.

        Raises UsageError or Mismatch for a job that cannot be, or a cluster that takes none, and Full if too many wait.
        """
        return self._lead.submit_job(wire.SubmitJobRequest(job=job.message())).number

    def list(self) -> tuple[JobStatus, ...]:
        """The jobs that wait, the one that runs, and the newest that have ended, in order of their numbers."""
        return tuple(map(job_status, self._lead.list_jobs(wire.ListJobsRequest()).jobs))

    def standing(self) -> tuple[StandingWorker, ...]:
        """The workers that stand by."""
        return _by_name(self._lead.list_jobs(wire.ListJobsRequest()).standing)

    def lost(self) -> tuple[StandingWorker, ...]:
        """Workers that stood by and vanished within the last hour: killed, stopped, or cut off."""
        return _by_name(self._lead.list_jobs(wire.ListJobsRequest()).lost)

    def get(self, number: int) -> JobStatus:
        """The job of that number. Raises UsageError if the lead does not know it."""
        found = self._lead.list_jobs(wire.ListJobsRequest(number=number)).jobs if number else ()
        if not found:
            raise UsageError(f"there is no job {number}: `psctl jobs` lists those that are known")
        return job_status(found[0])

    def cancel(self, number: int) -> JobStatus:
        """Takes a job out of the queue, or tells the one that runs to end. UsageError if there is none, or it has."""
        return job_status(self._lead.cancel_job(wire.CancelJobRequest(number=number)).job)

    def wait(self, wait: float, *, carrying: tuple[int, int] = (0, 0), ended: Carried | None = None) -> Assignment:
        """Says that this process stands by, and hears what to do; the lead may hold the call for `wait` seconds.

        Args:
            carrying: number and run of the job that it carries out at this moment.
            ended: how that ended, again until a call has been answered.
        """
        request = self._call(wait_ms=round(wait * 1000), carrying=carrying[0], run=carrying[1])
        if ended is not None:
            request.ended.CopyFrom(wire.Carried(**asdict(ended)))
        response = self._lead.await_job(request)
        return Assignment(
            job=request_of(response.job) if response.HasField("job") else None,
            number=response.number,
            run=response.run,
            over=response.over,
            closing=response.closing,
            exit_code=response.exit_code,
            reason=response.reason,
            lease=response.lease_ms / 1000,
            recovery=response.recovery_ms / 1000,
        )

    def leave(self, timeout: float) -> None:
        """Says that this process stands by no more; also what it answers when the cluster ends."""
        self._lead.await_job(self._call(leaving=True), timeout)

    def _call(self, **fields: Any) -> wire.AwaitJobRequest:
        self._calls += 1
        return wire.AwaitJobRequest(nonce=self._nonce, name=self._name, call=self._calls, **fields)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _by_name(found: Iterable[wire.StandingWorker]) -> tuple[StandingWorker, ...]:
    workers = (
        StandingWorker(name=it.name, carrying=it.carrying, silent_ms=it.silent_ms, failure=it.failure, failed=it.failed)
        for it in found
    )
    return tuple(sorted(workers, key=lambda worker: worker.name))


def job_status(message: wire.JobStatus) -> JobStatus:
    """Converts the lead's answer."""
    evaluated = message.HasField("evaluation")
    return JobStatus(
        number=message.number,
        name=message.name,
        model=message.model,
        state=wire.JobStatus.State.Name(message.state).removeprefix("STATE_").lower(),
        run=message.run,
        global_step=message.global_step,
        steps=message.steps,
        exit_code=message.exit_code,
        reason=message.reason,
        submitted_ms=message.submitted_ms,
        started_ms=message.started_ms if message.HasField("started_ms") else None,
        ended_ms=message.ended_ms if message.HasField("ended_ms") else None,
        workers=message.workers,
        loss=message.loss if message.HasField("loss") else None,
        batches=message.batches,
        examples=message.examples,
        running_ms=message.running_ms,
        waiting_for=message.waiting_for,
        generation=message.generation,
        metrics=dict(message.evaluation.metrics) if evaluated else {},
        evaluated_step=message.evaluation.global_step if evaluated else None,
    )
