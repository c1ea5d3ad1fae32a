"""One training stream against a call that a test plays: order, lengths and sums are checked, and nothing hangs."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np
import pytest

from grpc_ps.client.pushes import push_messages
from grpc_ps.client.shared.blocks import ParameterSpec, cut
from grpc_ps.client.shared.codec import detach_chunk, encode_message
from grpc_ps.client.shared.errors import Corrupt, Fenced, PeerLost, PeerUnreachable, trailing_metadata
from grpc_ps.client.shared.image import gather, values_layout
from grpc_ps.client.stream import WINDOW, TrainingStream
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire

SPEC = ParameterSpec(name="w", shape=(50,), dtype="float32")
LAYOUT = values_layout(cut(SPEC))
VALUE = np.arange(50, dtype=np.float32)
IMAGE = b"".join(gather(LAYOUT, 0, 256, [VALUE.view(np.uint8).data]))
Response = wire.PushPullResponse


class FakeCall(grpc.RpcError):
    """A bidirectional call. `requests` is read by the test, `responses` are what it answers."""

    def __init__(self, requests: Iterator[bytes], responses: list[bytes] | None = None) -> None:
        self.requests = requests
        self.responses: SimpleQueue[bytes | None] = SimpleQueue()
        for response in responses or []:
            self.responses.put(response)
        self.status: tuple[grpc.StatusCode, str, Any] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return True

    def end(self, code: grpc.StatusCode, details: str = "", metadata: Any = ()) -> None:
        with self._lock:
            if self.status is not None:
                return
            self.status = (code, details, metadata)
        self.responses.put(None)
        for callback in self._callbacks:
            callback()

    def cancel(self) -> None:
        self.end(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")

    def __next__(self) -> bytes:
        response = self.responses.get()
        if response is None:
            self.responses.put(None)
            if self.code() is grpc.StatusCode.OK:
                raise StopIteration
            raise self
        return response

    def code(self) -> grpc.StatusCode:
        assert self.status is not None
        return self.status[0]

    def details(self) -> str:
        assert self.status is not None
        return self.status[1]

    def trailing_metadata(self) -> Any:
        assert self.status is not None
        return self.status[2]


def stream(*responses: bytes) -> tuple[TrainingStream, FakeCall, list[None]]:
    calls: list[FakeCall] = []
    ended: list[None] = []

    def start(requests: Iterator[bytes]) -> FakeCall:
        calls.append(FakeCall(requests, list(responses)))
        return calls[0]

    one = TrainingStream(start, "a:1", lambda: ended.append(None))
    return one, calls[0], ended


def release(total: int = 256, **more: int) -> wire.Answer:
    return wire.Answer(position=4, release=wire.Release(batch=2, total_bytes=total), **more)


def chunk(message: Response, offset: int, data: bytes) -> bytes:
    return encode_message(message, offset, [data])


GOOD = [
    chunk(Response(answer=release()), 0, IMAGE[:128]),
    chunk(Response(), 128, IMAGE[128:192]),
    chunk(Response(end=True), 192, IMAGE[192:]),
]


def read(*responses: bytes) -> tuple[wire.Answer, np.ndarray]:
    one, _, _ = stream(*responses)
    destination = np.zeros(50, np.float32)
    return one.read_answer(LAYOUT, [destination.view(np.uint8)]), destination


def test_release_is_written_chunk_by_chunk() -> None:
    answer, received = read(*GOOD)
    assert answer == release()
    assert np.array_equal(received, VALUE)


def test_release_of_one_message() -> None:
    _, received = read(chunk(Response(answer=release(), end=True), 0, IMAGE))
    assert np.array_equal(received, VALUE)


def test_answer_without_release_has_no_chunk() -> None:
    answer, received = read(Response(answer=wire.Answer(position=3), end=True).SerializeToString())
    assert answer.position == 3
    assert not received.any()


@pytest.mark.parametrize(
    "responses",
    [
        [GOOD[1]],
        [GOOD[0], GOOD[2]],
        [GOOD[0], GOOD[1], GOOD[1]],
        [GOOD[0], chunk(Response(end=True), 128, IMAGE[128:192])],
        [GOOD[0], Response(end=True).SerializeToString()],
        [chunk(Response(answer=release(192), end=True), 0, IMAGE[:192])],
        [chunk(Response(answer=release(), end=True), 0, IMAGE + bytes(64))],
        [chunk(Response(answer=wire.Answer(position=3), end=True), 0, IMAGE)],
        [GOOD[0][:-1] + b"\x99", *GOOD[1:]],
        [b"\xff\xff\xff"],
    ],
    ids=["no-answer", "gap", "repeated", "short", "no-chunk", "total", "long", "unasked", "changed", "garbage"],
)
def test_damaged_answer_is_refused(responses: list[bytes]) -> None:
    with pytest.raises(Corrupt, match=r"^a:1: "):
        read(*responses)


def test_attach_is_the_first_message_and_gets_what_the_shard_holds() -> None:
    attached = wire.Attached(boot=9, whole_sequence=4)
    one, call, _ = stream(Response(attached=attached).SerializeToString())
    identity, job = job_pb2.Identity(run=1, worker=2), job_pb2.JobSpec(model="m")
    one.attach(identity, job)
    assert one.attached(5) == attached
    sent = wire.PushPullRequest.FromString(next(call.requests))
    assert sent == wire.PushPullRequest(attach=wire.Attach(id=identity, job=job))


def test_attach_waits_for_a_limited_time() -> None:
    one, _, ended = stream()
    one.attach(job_pb2.Identity(), None)
    with pytest.raises(PeerUnreachable, match=r"a:1: no answer within 0\.1 s"):
        one.attached(0.1)
    assert ended == [None]
    assert isinstance(one.failure(), PeerUnreachable)


def test_refusal_is_its_class_for_readers_and_senders() -> None:
    one, call, ended = stream()
    error = Fenced("worker 1 lost its lease")
    call.end(error.status, str(error), trailing_metadata(error))
    for action in (lambda: one.send(b"x"), lambda: one.read_answer(LAYOUT, [])):
        with pytest.raises(Fenced, match="worker 1 lost its lease"):
            action()
    assert isinstance(one.failure(), Fenced)
    assert ended == [None]


def test_shard_that_closes_the_stream_is_lost() -> None:
    one, call, _ = stream()
    call.end(grpc.StatusCode.OK)
    with pytest.raises(PeerLost, match="a:1: the shard closed the stream"):
        one.read_answer(LAYOUT, [])


def test_window_bounds_what_is_encoded_ahead() -> None:
    one, call, _ = stream()
    for number in range(WINDOW):
        one.send(bytes([number]))
    assert one._room.empty()
    # gRPC asks for a message when it has sent the one before: two requests make room for one.
    assert next(call.requests) == b"\x00"
    assert one._room.empty()
    sender = threading.Thread(target=one.send, args=(b"last",), daemon=True)
    sender.start()
    assert next(call.requests) == b"\x01"
    sender.join(10)
    assert not sender.is_alive()
    assert one._room.empty()


def test_close_wakes_reader_and_sender() -> None:
    one, call, _ = stream()
    for number in range(WINDOW):
        one.send(bytes([number]))
    errors: list[BaseException] = []

    def run(action: Callable[[], Any]) -> None:
        try:
            action()
        except PeerLost as error:
            errors.append(error)

    threads = [
        threading.Thread(target=run, args=(action,), daemon=True)
        for action in (lambda: one.send(b"x"), lambda: one.read_answer(LAYOUT, []))
    ]
    for thread in threads:
        thread.start()
    one.close()
    for thread in threads:
        thread.join(10)
    assert len(errors) == 2
    assert one.failure() is None
    assert list(call.requests) == [bytes([number]) for number in range(WINDOW)]


def until(holds: Callable[[], bool]) -> None:
    """Waits for what another thread does."""
    deadline = time.monotonic() + 10
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def test_answer_is_read_ahead_without_a_wait_and_then_as_always() -> None:
    one, call, _ = stream()
    assert one.peek() is None
    one.read_ahead()
    one.read_ahead()
    assert one.peek() is None
    for response in GOOD:
        call.responses.put(response)
    until(lambda: one.peek() is not None)
    assert one.peek() == release()
    destination = np.zeros(50, np.float32)
    assert one.read_answer(LAYOUT, [destination.view(np.uint8)]) == release()
    assert np.array_equal(destination, VALUE)
    assert call.responses.empty()
    assert one.peek() is None


QUIET = [
    wire.Answer(position=3, residual=wire.ResidualRequest(position=3, applied=1)),
    wire.Answer(position=3, global_step=1),
]


@pytest.mark.parametrize("quiet", QUIET, ids=["request", "position"])
def test_an_answer_that_says_nothing_of_a_push_does_not_hide_the_next_one(quiet: wire.Answer) -> None:
    one, call, _ = stream(Response(answer=quiet, end=True).SerializeToString())
    one.read_ahead()
    until(lambda: one.peek() == quiet)
    late = wire.Answer(position=4, result=wire.PushResult(sequence=2, outcome=wire.OUTCOME_LATE))
    one.read_ahead()
    one.read_ahead()
    assert one.peek() is None
    call.responses.put(Response(answer=late, end=True).SerializeToString())
    until(lambda: one.peek() == late)
    one.read_ahead()
    # All is read in order.
    call.responses.put(Response(answer=late, end=True).SerializeToString())
    assert [one.read_answer(LAYOUT, []) for _ in range(3)] == [quiet, late, late]
    assert call.responses.empty()


@pytest.mark.parametrize("response", [GOOD[1], b"\xff\xff\xff"], ids=["no-answer", "garbage"])
def test_what_is_no_answer_is_not_shown_ahead_and_refused_when_it_is_read(response: bytes) -> None:
    one, call, _ = stream(response)
    one.read_ahead()
    until(call.responses.empty)
    assert one.peek() is None
    with pytest.raises(Corrupt, match=r"^a:1: "):
        one.read_answer(LAYOUT, [])


@pytest.mark.parametrize("end", ["refused", "finished", "closed"])
def test_end_of_a_stream_that_is_read_ahead(end: str) -> None:
    one, call, _ = stream()
    one.read_ahead()
    error = Fenced("worker 1 lost its lease")
    if end == "refused":
        call.end(error.status, str(error), trailing_metadata(error))
    elif end == "finished":
        call.end(grpc.StatusCode.OK)
    else:
        one.close()
    assert one.peek() is None
    with pytest.raises(Fenced if end == "refused" else PeerLost):
        one.read_answer(LAYOUT, [])


def test_push_is_header_chunks_and_end() -> None:
    header = wire.PushHeader(sequence=3, total_bytes=256)
    messages = [
        detach_chunk(wire.PushPullRequest, message)
        for message in push_messages(header, LAYOUT, 128, [VALUE.view(np.uint8).data])
    ]
    assert [message for message, _ in messages] == [
        wire.PushPullRequest(header=header),
        wire.PushPullRequest(end=True),
    ]
    assert b"".join(part.data for _, part in messages if part) == IMAGE
    assert [part.offset for _, part in messages if part] == [0, 128]


def test_push_to_a_shard_without_blocks_is_one_message() -> None:
    header = wire.PushHeader(sequence=3)
    messages = list(push_messages(header, values_layout([]), 128, []))
    assert messages == [wire.PushPullRequest(header=header, end=True).SerializeToString()]
