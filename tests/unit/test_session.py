"""A worker's session against shards that a test plays: broken links, repeats, superseded answers, the end."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from queue import SimpleQueue
from typing import Any

import numpy as np
import pytest

from grpc_ps.client.membership import Membership
from grpc_ps.client.parameters import Parameters
from grpc_ps.client.session import Reply, TrainingSession
from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.codec import detach_chunk
from grpc_ps.client.shared.errors import Corrupt, Fenced, InvalidPush, LostState, PeerLost, PsError
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

    def attach(self, identity: job_pb2.Identity, job: job_pb2.JobSpec | None, timeout: float) -> wire.Attached:
        self.sent.append(wire.PushPullRequest(attach=wire.Attach(id=identity, job=job)))
        return self._attached

    def send(self, message: bytes) -> None:
        if self._ended:
            raise self._failure or PeerLost("closed")
        self.sent.append(detach_chunk(wire.PushPullRequest, message)[0])

    def read_answer(self, layout: Layout, destinations: Sequence[Bytes]) -> wire.Answer:
        step = self._script.get()
        if step is None:
            raise PeerLost("closed")
        if isinstance(step, PsError):
            self._end(step)
            raise step
        answer, fill = step
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
        return f"ask {message.ask.sequence}"
    kind = {1: "push", 2: "values"}[message.header.kind]
    return f"{kind} {message.header.sequence}"


class FakeLead:
    """Takes heartbeats; `response` may be changed by the test."""

    address = "lead:1"

    def __init__(self) -> None:
        self.response: wire.HeartbeatResponse | PsError = wire.HeartbeatResponse()

    def heartbeat(self, request: wire.HeartbeatRequest, timeout: float) -> wire.HeartbeatResponse:
        if isinstance(self.response, PsError):
            raise self.response
        return self.response


def session(
    *shards: FakeShard, lead: FakeLead | None = None, opener: bool = False, lease: float = 60.0, **more: Any
) -> TrainingSession:
    membership = Membership(
        identity=IDENTITY, job=job_pb2.JobSpec(model="m"), opener=opener, lease=lease, chunk_bytes=1 << 20, **more
    )
    return TrainingSession(
        membership=membership,
        parameters=Parameters(SPECS, place(SPECS, len(shards))),
        shards=shards,
        lead=lead or FakeLead(),
        reconnect_timeout=2.0,
    )


def answer(
    position: int, sequence: int = 0, batch: int | None = None, *, fill: float = 0.0, repeated: bool = False
) -> Scripted:
    result = wire.PushResult(sequence=sequence, outcome=wire.OUTCOME_APPLIED, repeated=repeated) if sequence else None
    release = None if batch is None else wire.Release(batch=batch)
    return wire.Answer(position=position, global_step=position, result=result, release=release), fill


def done(position: int, sequence: int, exit_code: int = 0) -> Scripted:
    result = wire.PushResult(sequence=sequence, outcome=wire.OUTCOME_APPLIED)
    end = wire.Done(exit_code=exit_code, reason="")
    return wire.Answer(position=position, global_step=position, result=result, done=end), 0.0


def values(one: TrainingSession) -> set[float]:
    return {float(x) for array in one.parameters.values() for x in array.ravel()}


def test_steps_of_two_shards() -> None:
    script = [answer(1, batch=0, fill=1), answer(2, 1, 1, fill=2), done(3, 2)]
    shards = [FakeShard("a:1", (7, 0, script)), FakeShard("b:1", (8, 0, script))]
    one = session(*shards)
    arrays = dict(one.parameters)
    assert one.begin() == Reply(global_step=1, batch=0)
    assert values(one) == {1.0}
    one.send(GRADIENTS, 5)
    assert one.wait() == Reply(outcome="APPLIED", global_step=2, batch=1)
    assert values(one) == {2.0}
    one.send(GRADIENTS, 5)
    assert one.wait() == Reply(outcome="APPLIED", global_step=3, done=True)
    assert all(one.parameters[name] is array for name, array in arrays.items())
    assert shards[0].sent() == ["attach", "ask 0", "push 1", "push 2"]
    assert shards[1].sent() == ["attach", "push 1", "push 2"]
    header = shards[1].streams[0].sent[2].header
    assert header == wire.PushHeader(id=IDENTITY, sequence=2, kind=1, base_step=2, batch=1, examples=5, total_bytes=64)


def test_opener_sends_values_and_waits_for_their_answer() -> None:
    shards = [FakeShard(name, (7, 0, [answer(3, 1, 0, fill=4)])) for name in ("a:1", "b:1")]
    one = session(*shards, opener=True)
    one.open(GRADIENTS)
    assert one.begin() == Reply(outcome="APPLIED", global_step=3, batch=0)
    assert [shard.sent() for shard in shards] == [["attach job", "values 1"]] * 2


def test_answer_of_a_lower_position_is_never_mixed_with_a_higher_one() -> None:
    shards = [
        FakeShard("a:1", (7, 0, [answer(4, batch=2, fill=4), answer(6, batch=2, fill=6)])),
        FakeShard("b:1", (8, 0, [answer(6, batch=2, fill=6)])),
    ]
    one = session(*shards)
    assert one.begin() == Reply(global_step=6, batch=2)
    assert values(one) == {6.0}


def test_broken_link_is_mended_and_only_what_is_missing_is_sent_again() -> None:
    first = answer(1, batch=0)
    again = answer(5, 1, 3, fill=5, repeated=True)
    shards = [
        FakeShard("a:1", (7, 0, [first, answer(2, 1, 1, fill=2)]), (7, 1, [again])),
        FakeShard("b:1", (8, 0, [first, PeerLost("b:1: reset")]), (8, 0, [again])),
    ]
    one = session(*shards)
    one.begin()
    one.send(GRADIENTS, 1)
    # Shard 0 had told the outcome before; the parameters are the later ones.
    assert one.wait() == Reply(outcome="APPLIED", global_step=5, batch=3)
    assert values(one) == {5.0}
    assert shards[0].sent() == ["attach", "ask 1"]
    assert shards[1].sent() == ["attach", "push 1"]
    assert shards[1].streams[1].sent[1].header == shards[1].streams[0].sent[1].header


def test_link_that_breaks_between_steps_is_mended_by_the_next_wait() -> None:
    shard = FakeShard("a:1", (7, 0, [answer(1, batch=0)]), (7, 0, [answer(2, 1, 1)]))
    one = session(shard)
    one.begin()
    shard.streams[0].close()
    one.send(GRADIENTS, 1)
    assert one.wait() == Reply(outcome="APPLIED", global_step=2, batch=1)
    assert shard.sent() == ["attach", "ask 1", "push 1"]


def test_opener_whose_link_breaks_attaches_with_the_job_again() -> None:
    shard = FakeShard("a:1", (7, 0, [Corrupt("a:1: damaged")]), (7, 0, [answer(1, 1, 0)]))
    one = session(shard, opener=True)
    one.open(GRADIENTS)
    assert one.begin().batch == 0
    assert shard.sent() == ["attach job", "ask 1", "values 1"]


def test_other_boot_means_that_the_state_is_gone() -> None:
    broken = [answer(1, batch=0), PeerLost("reset")]
    shard = FakeShard("a:1", (7, 0, broken), (9, 0, []))
    one = session(shard)
    one.begin()
    with pytest.raises(LostState, match=r"shard 0 \(a:1\) restarted"):
        one.wait()


@pytest.mark.parametrize("error", [Fenced("lease ended"), InvalidPush("wrong base step")])
def test_refusal_is_not_tried_again(error: PsError) -> None:
    shard = FakeShard("a:1", (7, 0, [error]))
    with pytest.raises(type(error), match=str(error)):
        session(shard).begin()


def test_link_that_keeps_breaking_is_given_up() -> None:
    broken = (7, 0, [PeerLost("a:1: reset")])
    shard = FakeShard("a:1", *[broken] * 20)
    with pytest.raises(PeerLost, match="a:1: reset"):
        session(shard).begin()
    assert len(shard.streams) == 11


def test_shard_that_is_gone_after_the_end_is_normal() -> None:
    lead = FakeLead()
    lead.response = wire.HeartbeatResponse(done=True, global_step=20)
    shard = FakeShard("a:1", (7, 0, [Fenced("ending")]))
    assert session(shard, lead=lead).begin() == Reply(done=True, global_step=20)


def test_heartbeat_that_says_done_ends_a_wait() -> None:
    lead = FakeLead()
    shard = FakeShard("a:1", (7, 0, []))
    one = session(shard, lead=lead, lease=0.04)
    lead.response = wire.HeartbeatResponse(done=True, global_step=20, exit_code=4, reason="shard 1 is gone")
    assert one.begin() == Reply(done=True, global_step=20, exit_code=4, reason="shard 1 is gone")
    assert one.global_step == 20


def test_lost_lease_ends_a_wait() -> None:
    lead = FakeLead()
    one = session(FakeShard("a:1", (7, 0, [])), lead=lead, lease=0.04)
    lead.response = Fenced("worker 3 is no member any more")
    with pytest.raises(Fenced, match="worker 3 is no member"):
        one.begin()


def test_heartbeat_tells_of_evaluator_and_step() -> None:
    lead = FakeLead()
    lead.response = wire.HeartbeatResponse(global_step=9, evaluator=True)
    beaten = threading.Event()
    one = session(FakeShard("a:1", (7, 0, [])), lead=lead, lease=0.04)
    heard = one.beat
    one.beat = lambda response: (heard(response), beaten.set())  # type: ignore[method-assign, assignment, func-returns-value]
    assert beaten.wait(10)
    assert (one.global_step, one.evaluator) == (9, True)
    one.leave()


def test_job_that_has_ended_before_is_done_at_once() -> None:
    end = Reply(done=True, global_step=20)
    assert session(FakeShard("a:1"), ended=end).begin() == end


def test_gradients_that_do_not_fit_change_nothing() -> None:
    shard = FakeShard("a:1", (7, 0, [answer(1, batch=0), answer(2, 1, 1)]))
    one = session(shard)
    one.begin()
    with pytest.raises(InvalidPush, match="missing: b"):
        one.send({"a": GRADIENTS["a"]}, 1)
    one.send(GRADIENTS, 1)
    assert one.wait().batch == 1
    assert shard.sent() == ["attach", "ask 0", "push 1"]


def test_send_without_a_batch_is_an_error_of_the_caller() -> None:
    with pytest.raises(RuntimeError, match="call `begin`"):
        session(FakeShard("a:1")).send(GRADIENTS, 1)


def test_leave_gives_the_place_back_once() -> None:
    left: list[None] = []
    one = TrainingSession(
        membership=Membership(identity=IDENTITY, job=job_pb2.JobSpec(), opener=False, lease=60, chunk_bytes=64),
        parameters=Parameters(SPECS, PLACE),
        shards=[],
        lead=FakeLead(),
        on_leave=lambda: left.append(None),
    )
    one.leave()
    one.leave()
    assert left == [None]
