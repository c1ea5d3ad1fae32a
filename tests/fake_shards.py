"""Shards and a lead that a test plays to a worker's session, message by message."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

import numpy as np

from grpc_ps.client.membership import Membership
from grpc_ps.client.parameters import Parameters
from grpc_ps.client.session import TrainingSession
from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.codec import detach_chunk
from grpc_ps.client.shared.errors import PeerLost, PeerUnreachable, PsError
from grpc_ps.client.shared.image import Bytes, Layout
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire

IDENTITY = job_pb2.Identity(run=1, generation=2, worker=3, incarnation=4)
SPECS = [ParameterSpec(name="a", shape=(3,), dtype="float32"), ParameterSpec(name="b", shape=(2, 2), dtype="float32")]
GRADIENTS = {"a": np.ones(3, np.float32), "b": np.full((2, 2), 2, np.float32)}
PLACE = place(SPECS, 2)

# What a shard sends next: an answer with the number that fills its parameters, or the end of the stream.
Scripted = tuple[wire.Answer, float] | PsError


class FakeStream:
    """Plays one stream: answers in the order of a script, and keeps what was sent."""

    def __init__(self, address: str, boot: int, whole: int, script: Sequence[Scripted], on_end: Callable[[], None]):
        self.address = address
        self.sent: list[wire.PushPullRequest] = []
        self._attached = wire.Attached(boot=boot, whole_sequence=whole)
        self._script: SimpleQueue[Scripted | None] = SimpleQueue()
        for step in script:
            self._script.put(step)
        self._on_end = on_end
        self._failure: PsError | None = None
        self._ended = False
        self._ahead: list[Scripted | None] = []
        self._reading_ahead = False

    def attach(self, identity: job_pb2.Identity, job: job_pb2.JobSpec | None) -> None:
        self.sent.append(wire.PushPullRequest(attach=wire.Attach(id=identity, job=job)))

    def attached(self, timeout: float) -> wire.Attached:
        return self._attached

    def send(self, message: bytes) -> None:
        if self._ended:
            raise self._failure or PeerLost("closed")
        self.sent.append(detach_chunk(wire.PushPullRequest, message)[0])

    def say(self, step: Scripted) -> None:
        """Lets the shard send something more."""
        self._script.put(step)

    def read_ahead(self) -> None:
        self._reading_ahead = True

    def peek(self) -> wire.Answer | None:
        """What is next in the script is there at once."""
        if self._reading_ahead and not self._ahead:
            try:
                self._ahead.append(self._script.get_nowait())
            except Empty:
                return None
        step = self._ahead[0] if self._ahead else None
        return step[0] if isinstance(step, tuple) else None

    def read_answer(
        self,
        layout: Layout,
        destinations: Sequence[Bytes],
        begins: Callable[[], None] = lambda: None,
        rows: object = None,
    ) -> wire.Answer:
        self._reading_ahead = False
        step = self._ahead.pop() if self._ahead else self._script.get()
        if step is None:
            raise PeerLost("closed")
        if isinstance(step, PsError):
            self._end(step)
            raise step
        answer, fill = step
        begins()
        for destination in destinations:
            destination.view(np.float32)[:] = fill
        return answer

    def failure(self) -> PsError | None:
        return self._failure

    def _end(self, failure: PsError | None) -> None:
        if not self._ended:
            self._ended, self._failure = True, failure
            self._on_end()

    def close(self) -> None:
        self._script.put(None)
        self._end(None)


class FakeShard:
    """Opens the streams of a test, one after the other; each is (boot, whole sequence, script)."""

    def __init__(self, address: str, *streams: tuple[int, int, Sequence[Scripted]]) -> None:
        self.address = address
        self._plan = list(streams)
        self.streams: list[FakeStream] = []

    def open_stream(self, on_end: Callable[[], None]) -> FakeStream:
        boot, whole, script = self._plan.pop(0)
        self.streams.append(FakeStream(self.address, boot, whole, script, on_end))
        return self.streams[-1]

    def sent(self, stream: int = -1) -> list[str]:
        """What was sent on a stream: the names of the messages' fields, with a push's or an ask's sequence."""
        return [_name(message) for message in self.streams[stream].sent]


def _name(message: wire.PushPullRequest) -> str:
    if message.HasField("attach"):
        return "attach job" if message.attach.HasField("job") else "attach"
    if message.HasField("ask"):
        return f"ask {message.ask.sequence}{' out of data' if message.ask.out_of_data else ''}"
    if not message.HasField("header"):
        return "end" if message.end else "more"
    kind = {1: "push", 2: "values"}[message.header.kind]
    return f"{kind} {message.header.sequence}"


class FakeLead:
    """Takes heartbeats; `response` may be changed by the test.

    It leaves when it has told the end a hundred times: else a session that a test leaves as it is would beat for ever.
    """

    address = "lead:1"
    LEAVES_AFTER = 100

    def __init__(self) -> None:
        self.response: wire.HeartbeatResponse | PsError = wire.HeartbeatResponse()
        self.reports: list[wire.ReportRequest] = []
        self.requests: list[wire.HeartbeatRequest] = []
        self._ends = 0

    def report(self, request: wire.ReportRequest) -> None:
        self.reports.append(request)

    def heartbeat(self, request: wire.HeartbeatRequest, timeout: float) -> wire.HeartbeatResponse:
        self.requests.append(request)
        if isinstance(self.response, PsError):
            raise self.response
        self._ends += self.response.done
        if self._ends > self.LEAVES_AFTER:
            raise PeerUnreachable(f"{self.address}: has left")
        return self.response


def session(
    *shards: FakeShard,
    lead: FakeLead | None = None,
    opener: bool = False,
    lease: float = 60.0,
    job: job_pb2.JobSpec | None = None,
    chunk_bytes: int = 1 << 20,
    specs: Sequence[ParameterSpec] = SPECS,
    **more: Any,
) -> TrainingSession:
    job = job or job_pb2.JobSpec(model="m")
    membership = Membership(identity=IDENTITY, job=job, opener=opener, lease=lease, chunk_bytes=chunk_bytes, **more)
    return TrainingSession(
        membership=membership,
        parameters=Parameters(specs, place(specs, len(shards))),
        shards=shards,
        lead=lead or FakeLead(),
        reconnect_timeout=2.0,
    )


def answer(
    position: int,
    sequence: int = 0,
    batch: int | None = None,
    *,
    fill: float = 0.0,
    repeated: bool = False,
    outcome: wire.Outcome = wire.OUTCOME_APPLIED,
) -> Scripted:
    result = wire.PushResult(sequence=sequence, outcome=outcome, repeated=repeated) if sequence else None
    release = None if batch is None else wire.Release(batch=batch)
    return wire.Answer(position=position, global_step=position, result=result, release=release), fill


def done(position: int, sequence: int, exit_code: int = 0) -> Scripted:
    result = wire.PushResult(sequence=sequence, outcome=wire.OUTCOME_APPLIED) if sequence else None
    end = wire.Done(exit_code=exit_code, reason="")
    return wire.Answer(position=position, global_step=position, result=result, done=end), 0.0


def values(one: TrainingSession) -> set[float]:
    return {float(x) for array in one.parameters.values() for x in array.ravel()}
