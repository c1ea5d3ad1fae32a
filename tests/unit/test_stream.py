"""One training stream against a call that a test plays: order, lengths and sums are checked, and nothing hangs."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
from fake_call import GOOD, IMAGE, LAYOUT, VALUE, Response, chunk, read, release, stream

from grpc_ps.client.shared.errors import Corrupt, Fenced, PeerLost, PeerUnreachable, trailing_metadata
from grpc_ps.client.stream import WINDOW
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire


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
