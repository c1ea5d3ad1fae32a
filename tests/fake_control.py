"""A lead that a test plays to psctl: the service Control on a real port, with answers that the test gives."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NoReturn

import grpc

from grpc_ps.client.shared import codec
from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.errors import PsError, trailing_metadata
from grpc_ps.protos import control_pb2 as wire
from grpc_ps.protos import control_pb2_grpc, job_pb2

SPECS = (
    ParameterSpec(name="hid_w", shape=(784, 200), dtype="float32"),
    ParameterSpec(name="hid_b", shape=(200,), dtype="float32"),
    ParameterSpec(name="seen", shape=(), dtype="int64", trainable=False),
)


def job(shards: int = 2, model: str = "mnist", **settings: Any) -> job_pb2.JobSpec:
    """A job with those settings beside some that psctl shows."""
    stated = {"mode": "async", "workers": 1, "backup": 0, "steps": 3000, "max_staleness": -1, "min_workers": 0}
    spec = job_pb2.JobSpec(model=model, settings=job_pb2.Settings(**{**stated, **settings}))
    spec.parameters.extend(map(codec.to_proto, SPECS))
    spec.plan_fingerprint = place(SPECS, shards).fingerprint
    return spec


def status(global_step: int = 30, **fields: Any) -> wire.StatusResponse:
    """A job that runs on two shards with one worker; `fields` replace those of the message."""
    worker = wire.WorkerStatus(
        worker=1, incarnation=3, name="host:17", local_step=15, applied=12, late=2, non_finite=1, batch=44,
        staleness=4, mean_staleness=1.5, max_staleness=7, silent_ms=1500, loss=0.25, evaluator=True,
        activity="computing", applied_step=29,
    )  # fmt: skip
    shards = [
        wire.ShardStatus(shard=0, address="a:1", connected=True, blocks=8, value_bytes=318040, position=57),
        wire.ShardStatus(shard=1, address="b:2", connected=False, blocks=5, value_bytes=310000, position=50),
    ]
    whole = {
        "run": 1, "generation": 2, "phase": wire.StatusResponse.PHASE_RUNNING, "global_step": global_step, "job": job(),
        "shards": shards, "workers": [worker], "opened": 1, "uptime_ms": 5000, "learning_rate_factor": 1.0,
        "learning_rate": 0.01, "position": 57,
    }  # fmt: skip
    return wire.StatusResponse(**{**whole, **fields})


class FakeControl(control_pb2_grpc.ControlServicer):
    """Answers `Status` with the given readings, the last one again and again, or then as a lead that is gone.

    Attributes:
        address: where it listens, while the `with` lasts.
        requests: what came to `Set`.
        answer: what `Set` answers, or is refused with.
        waits: the milliseconds that came to `Checkpoint`.
        saved: what `Checkpoint` answers, or is refused with.
        gone: the readings, by their numbers, in place of which nobody answers.
        submitted: what came to `SubmitJob`; `number` is the answer, or what it is refused with.
        jobs: what `ListJobs` answers, one after the other and the last one again and again, each with `standing` and
            `lost`.
        cancelled: what came to `CancelJob`.
        stopped: the step that `StopJob` answers with.
    """

    def __init__(self, *readings: wire.StatusResponse, then_gone: bool = False, gone: Collection[int] = ()) -> None:
        self._readings: Sequence[wire.StatusResponse] = readings or [status()]
        self._then_gone = then_gone
        self._gone = gone
        self._asked = 0
        self._server = grpc.server(ThreadPoolExecutor(2))
        control_pb2_grpc.add_ControlServicer_to_server(self, self._server)
        self.address = f"127.0.0.1:{self._server.add_insecure_port('127.0.0.1:0')}"
        self.requests: list[wire.SetRequest] = []
        self.answer: wire.SetResponse | PsError = wire.SetResponse()
        self.waits: list[int] = []
        self.saved: wire.CheckpointResponse | PsError = wire.CheckpointResponse()
        self.submitted: list[wire.JobRequest] = []
        self.number: int | PsError = 3
        self.jobs: list[list[wire.JobStatus]] = []
        self.standing: list[wire.StandingWorker] = []
        self.lost: list[wire.StandingWorker] = []
        self.cancelled: list[int] = []
        self.stopped = 30

    def __enter__(self) -> FakeControl:
        self._server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.stop(None).wait(10)

    def Status(self, request: wire.StatusRequest, context: grpc.ServicerContext) -> wire.StatusResponse:
        self._asked += 1
        if (self._asked > len(self._readings) and self._then_gone) or self._asked - 1 in self._gone:
            context.abort(grpc.StatusCode.UNAVAILABLE, "gone")
        return self._readings[min(self._asked, len(self._readings)) - 1]

    def StopJob(self, request: wire.StopJobRequest, context: grpc.ServicerContext) -> wire.StopJobResponse:
        return wire.StopJobResponse(global_step=self.stopped)

    def Set(self, request: wire.SetRequest, context: grpc.ServicerContext) -> wire.SetResponse:
        self.requests.append(request)
        if isinstance(self.answer, PsError):
            _refuse(context, self.answer)
        return self.answer

    def Checkpoint(self, request: wire.CheckpointRequest, context: grpc.ServicerContext) -> wire.CheckpointResponse:
        self.waits.append(request.wait_ms)
        if isinstance(self.saved, PsError):
            _refuse(context, self.saved)
        return self.saved

    def SubmitJob(self, request: wire.SubmitJobRequest, context: grpc.ServicerContext) -> wire.SubmitJobResponse:
        self.submitted.append(request.job)
        if isinstance(self.number, PsError):
            _refuse(context, self.number)
        return wire.SubmitJobResponse(number=self.number)

    def ListJobs(self, request: wire.ListJobsRequest, context: grpc.ServicerContext) -> wire.ListJobsResponse:
        now = self.jobs.pop(0) if len(self.jobs) > 1 else (self.jobs or [[]])[0]
        found = [job for job in now if request.number in (0, job.number)]
        return wire.ListJobsResponse(jobs=found, standing=self.standing, lost=self.lost)

    def CancelJob(self, request: wire.CancelJobRequest, context: grpc.ServicerContext) -> wire.CancelJobResponse:
        self.cancelled.append(request.number)
        return wire.CancelJobResponse(job=job_status("CANCELLED", number=request.number, global_step=9, started_ms=1))


def job_status(state: str = "RUNNING", number: int = 3, **fields: Any) -> wire.JobStatus:
    """A job of the queue in that state; `fields` replace those of the message."""
    whole = {"number": number, "name": "try", "model": "mnist", "run": 7, "steps": 100, "submitted_ms": 1000}
    return wire.JobStatus(state=f"STATE_{state}", **{**whole, **fields})


def _refuse(context: grpc.ServicerContext, error: PsError) -> NoReturn:
    context.set_trailing_metadata(trailing_metadata(error))
    context.abort(error.status, str(error))
