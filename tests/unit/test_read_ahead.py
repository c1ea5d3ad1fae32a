"""Answers that are looked at before anybody waits for them: a push may be decided while it is sent."""

from __future__ import annotations

import grpc
import numpy as np
import pytest
from fake_call import GOOD, LAYOUT, VALUE, Response, release, stream, until

from grpc_ps.client.shared.errors import Corrupt, Fenced, PeerLost, trailing_metadata
from grpc_ps.protos import parameter_server_pb2 as wire


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
