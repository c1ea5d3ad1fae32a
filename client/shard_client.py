"""Calls to one shard: the only user of the generated stubs. Failures are classes of `shared.errors`."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from typing import Any, TypeAlias, TypeVar

import grpc

from grpc_ps.client.channel import close_channel, open_channel
from grpc_ps.client.fault_interceptor import FaultInterceptor
from grpc_ps.client.shared.codec import ChunkView, detach_chunk
from grpc_ps.client.shared.errors import Corrupt, PsError, UsageError, from_rpc_error
from grpc_ps.client.shared.faults import Faults
from grpc_ps.client.shared.security import Security
from grpc_ps.client.stream import TrainingStream
from grpc_ps.protos import control_pb2, control_pb2_grpc
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.protos import parameter_server_pb2_grpc as wire_grpc

Response = TypeVar("Response")
Pulling: TypeAlias = tuple[wire.PullResponse, ChunkView | None]
"""A message of a snapshot, and the chunk in it."""

_SERVICE = "/grpc_ps.v1.ParameterServer"
# Seconds for calls that never block on the other side.
CALL_SECONDS = 10.0


class ShardClient:
    """One shard and the connection to it. Thread-safe, as gRPC's channels are."""

    def __init__(self, address: str, security: Security | None = None, faults: Faults | None = None) -> None:
        security = security or Security()
        self.address = address
        self._metadata = security.metadata(address)
        self.channel = open_channel(address, security)
        calls = grpc.intercept_channel(self.channel, FaultInterceptor(faults)) if faults else self.channel
        self._workers: Any = wire_grpc.ParameterServerStub(calls)
        self._control: Any = control_pb2_grpc.ControlStub(calls)
        # Messages with chunks travel as bytes: `shared.codec` copies them less often than protobuf would.
        self._push_pull = calls.stream_stream(f"{_SERVICE}/PushPull", None, None)
        self._pull = calls.unary_stream(f"{_SERVICE}/Pull", None, None)
        self._closed = False

    def check_open(self) -> None:
        """Raises UsageError once it is closed: no call is possible any more."""
        if self._closed:
            raise UsageError(f"the client of {self.address} is closed; make another PSClient")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except grpc.RpcError as error:
            # Its text has all that gRPC says; a traceback of gRPC's calls would say nothing more.
            raise from_rpc_error(error, self.address) from None

    def _call(self, method: Any, request: object, response: type[Response], timeout: float = CALL_SECONDS) -> Response:
        self.check_open()
        with self._errors():
            answer = method(request, timeout=timeout, metadata=self._metadata)
        assert isinstance(answer, response)
        return answer

    def join(self, request: wire.JoinRequest) -> wire.JoinResponse:
        """Asks to become a member; the shard may hold the call for the request's `wait_ms`."""
        return self._call(self._workers.Join, request, wire.JoinResponse, CALL_SECONDS + request.wait_ms / 1000)

    def heartbeat(self, request: wire.HeartbeatRequest, timeout: float = CALL_SECONDS) -> wire.HeartbeatResponse:
        """Keeps the lease."""
        return self._call(self._workers.Heartbeat, request, wire.HeartbeatResponse, timeout)

    def leave(self, request: wire.LeaveRequest, timeout: float = CALL_SECONDS) -> None:
        """Gives the place back."""
        self._call(self._workers.Leave, request, wire.LeaveResponse, timeout)

    def report(self, request: wire.ReportRequest, timeout: float = CALL_SECONDS) -> None:
        """Tells the result of an evaluation."""
        self._call(self._workers.Report, request, wire.ReportResponse, timeout)

    def status(self, timeout: float = CALL_SECONDS) -> control_pb2.StatusResponse:
        """Asks the lead for the state of the cluster."""
        return self._call(self._control.Status, control_pb2.StatusRequest(), control_pb2.StatusResponse, timeout)

    def stop_job(self, timeout: float = CALL_SECONDS) -> int:
        """Ends the job. Returns its last global step."""
        request = control_pb2.StopJobRequest()
        return self._call(self._control.StopJob, request, control_pb2.StopJobResponse, timeout).global_step

    def checkpoint(self, wait: float) -> control_pb2.CheckpointResponse:
        """Saves the job; the lead holds the call until that is done, up to `wait` seconds."""
        request = control_pb2.CheckpointRequest(wait_ms=round(wait * 1000))
        return self._call(self._control.Checkpoint, request, control_pb2.CheckpointResponse, wait + CALL_SECONDS)

    def set_job(self, request: control_pb2.SetRequest, timeout: float = CALL_SECONDS) -> control_pb2.SetResponse:
        """Changes settings of the running job."""
        return self._call(self._control.Set, request, control_pb2.SetResponse, timeout)

    def submit_job(self, request: control_pb2.SubmitJobRequest) -> control_pb2.SubmitJobResponse:
        """Puts a job into the lead's queue."""
        return self._call(self._control.SubmitJob, request, control_pb2.SubmitJobResponse)

    def list_jobs(self, request: control_pb2.ListJobsRequest) -> control_pb2.ListJobsResponse:
        """Asks the lead for the jobs in its queue."""
        return self._call(self._control.ListJobs, request, control_pb2.ListJobsResponse)

    def cancel_job(self, request: control_pb2.CancelJobRequest) -> control_pb2.CancelJobResponse:
        """Takes a job out, or ends it."""
        return self._call(self._control.CancelJob, request, control_pb2.CancelJobResponse)

    def await_job(
        self, request: control_pb2.AwaitJobRequest, timeout: float = CALL_SECONDS
    ) -> control_pb2.AwaitJobResponse:
        """Asks for work; the lead may hold the call for the request's `wait_ms`."""
        return self._call(
            self._control.AwaitJob, request, control_pb2.AwaitJobResponse, timeout + request.wait_ms / 1000
        )

    def open_stream(self, on_end: Callable[[], None]) -> TrainingStream:
        """Opens a training stream. It has no deadline of its own: whoever waits on it has to close it."""
        # A shard that is on its way back is waited for; `attach` is told for how long.
        return TrainingStream(
            lambda requests: self._push_pull(requests, wait_for_ready=True, metadata=self._metadata),
            self.address,
            on_end,
        )

    def pull(
        self,
        snapshot: int,
        timeout: float,
        *,
        averages: bool = False,
        table: str = "",
        ids: bytes = b"",
        keep: bool = False,
        shard_count: int = 0,
    ) -> Generator[Pulling, None, None]:
        """Streams a snapshot's values from this shard; zero asks the lead to pin one. The call begins at once.

        `averages` is for the lead: those in place of values, if the job keeps any; and so is `shard_count`, how many
        shards the caller knows. With `table` rows of that are streamed: those of `ids`, or all. With `keep` the
        snapshot is there for more.
        """
        self.check_open()
        request = wire.PullRequest(
            snapshot=snapshot, averages=averages, table=table, ids=ids, keep=keep, shard_count=shard_count
        )
        return self._pulled(self._pull(request.SerializeToString(), timeout=timeout, metadata=self._metadata))

    def let_go(self, snapshot: int) -> None:
        """Gives a snapshot back that was kept. Never raises: its time ends anyway."""
        with suppress(PsError):
            next(self.pull(snapshot, CALL_SECONDS), None)

    def _pulled(self, call: Any) -> Generator[Pulling, None, None]:
        try:
            with self._errors():
                for data in call:
                    yield _decode(data, self.address)
        finally:
            call.cancel()

    def close(self) -> None:
        """Closes the connection; calls under way end."""
        self._closed = True
        close_channel(self.channel)


def _decode(data: bytes, address: str) -> tuple[wire.PullResponse, ChunkView | None]:
    try:
        return detach_chunk(wire.PullResponse, data)
    except ValueError as error:
        raise Corrupt(f"{address}: {error}") from None
