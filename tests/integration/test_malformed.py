"""Pushes that break the protocol: refused with a reason, without a trace, and the next good push works."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import pytest
from raw_bed import CHUNK, SIZE, SPEC, Bed, Messages, merged, opened_bed
from raw_worker import RawStream, chunk, floats

from grpc_ps.protos.parameter_server_pb2 import Outcome, PushHeader, PushPullRequest

INVALID, LOSS = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.DATA_LOSS
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
def bed() -> Iterator[Bed]:
    with opened_bed() as opened:
        yield opened


def changed(bed: Bed, change: Callable[[PushHeader], None]) -> Messages:
    """A good push with another header."""
    messages = bed.good()
    assert isinstance(messages[0], PushPullRequest)
    change(messages[0].header)
    return messages


def set_field(name: str, value: int) -> Callable[[Bed], Messages]:
    return lambda bed: changed(bed, lambda header: setattr(header, name, value))


def set_id(name: str, add: int) -> Callable[[Bed], Messages]:
    return lambda bed: changed(bed, lambda header: setattr(header.id, name, getattr(header.id, name) + add))


def ask(bed: Bed) -> PushPullRequest:
    return bed.worker.ask(1)


HEADERS: dict[str, tuple[Callable[[Bed], Messages], str]] = {
    "b18-short": (set_field("total_bytes", SIZE - 64), "2368 bytes declared, the image has 2432"),
    "b18-long": (set_field("total_bytes", SIZE * 2), "4864 bytes declared, the image has 2432"),
    "b18-huge": (set_field("total_bytes", 1 << 62), "the image has 2432"),
    "b18-empty": (set_field("total_bytes", 0), "0 bytes declared, the image has 2432"),
    "b18-no-examples": (set_field("examples", 0), "push 2: no examples"),
    "b18-unspecified-kind": (set_field("kind", 0), "push 2: unknown kind 0"),
    "b18-unknown-kind": (set_field("kind", 7), "push 2: unknown kind 7"),
    "b18-values-again": (set_field("kind", PushHeader.KIND_VALUES), "only the opener sends values"),
    "a-number-left-out": (set_field("sequence", 3), "push 3 of worker 0: expected number 2"),
    "no-number": (set_field("sequence", 0), "push 0 of worker 0: expected number 2"),
    "b24-header-in-a-push": (lambda bed: bed.good()[:2] + bed.good(), "not ended before the next push"),
    "another-header-in-a-push": (lambda bed: bed.good()[:2] + bed.good(sequence=3), "not ended before the next push"),
    "ask-in-a-push": (lambda bed: [*bed.good()[:2], ask(bed)], "not ended before `ask`"),
    "ask-and-end": (lambda bed: [merged(ask(bed), PushPullRequest(end=True))], "`ask` stands alone"),
    "attached-twice": (lambda bed: [bed.worker.attach_message()], "attached already"),
    "no-protobuf": (lambda bed: [b"\xff\xff\xff garbage"], "not a PushPullRequest"),
    "no-protobuf-in-a-push": (lambda bed: [*bed.good()[:2], b"\x0a\xff"], "not a PushPullRequest"),
}


@pytest.mark.parametrize(("messages", "says"), HEADERS.values(), ids=HEADERS)
def test_b18_what_no_push_can_be_is_refused(bed: Bed, messages: Callable[[Bed], Messages], says: str) -> None:
    """Fault B18: a wrong header, or one where none can be."""
    status, reason, text = bed.worker.attach().send(*messages(bed)).refusal()
    assert (status, reason) == (INVALID, "INVALID_PUSH")
    assert says in text
    bed.check_nothing_happened()
    bed.check_good_push()


A, B, C = (PushPullRequest(chunk=chunk(at, floats(600, 1.0)[at : at + CHUNK])) for at in range(0, SIZE, CHUNK))
END = PushPullRequest(end=True)


def bare(offset: int, size: int, total: int | None = None) -> PushPullRequest:
    return PushPullRequest(chunk=chunk(offset, bytes(size), total))


CHUNKS: dict[str, tuple[Messages, grpc.StatusCode, str]] = {
    "missing": ([A, B, END], INVALID, "ended after 2048 of 2432 bytes"),
    "none": ([END], INVALID, "ended after 0 of 2432 bytes"),
    "gap": ([A, C, END], INVALID, "a chunk of 384 bytes at 2048, expected one at 1024"),
    "reordered": ([B, A, C, END], INVALID, "a chunk of 1024 bytes at 1024, expected one at 0"),
    "repeated": ([A, A, B, C, END], INVALID, "a chunk of 1024 bytes at 0, expected one at 1024"),
    "all-again": ([A, B, C, A], INVALID, "expected one at 2432"),
    "beyond-the-image": ([A, B, bare(2048, 448)], INVALID, "bytes up to 2496, the image has 2432"),
    "after-the-image": ([A, B, C, bare(SIZE, 64)], INVALID, "bytes up to 2496, the image has 2432"),
    "empty": ([A, bare(1024, 0)], INVALID, "a chunk of 0 bytes at 1024"),
    "too-large": ([bare(0, 2048)], INVALID, "a chunk of 2048 bytes must be a multiple of 64, at most 1024"),
    "odd": ([bare(0, 1000)], INVALID, "a chunk of 1000 bytes must be a multiple of 64, at most 1024"),
    "wrong-sum": ([A, bare(1024, 1024, 1)], LOSS, "the sum of the chunk at 1024 is wrong"),
}


@pytest.mark.parametrize(("messages", "status", "says"), CHUNKS.values(), ids=CHUNKS)
def test_b24_chunks_that_are_not_the_image_are_refused(
    bed: Bed, messages: Messages, status: grpc.StatusCode, says: str
) -> None:
    """Fault B24: out of order, repeated, with a gap, beyond the length, with a wrong sum."""
    stream = bed.worker.attach().send(PushPullRequest(header=bed.header()), *messages)
    got, reason, text = stream.refusal()
    assert (got, reason) == (status, "CORRUPT" if status is LOSS else "INVALID_PUSH")
    assert f"push 2 of worker 0: {says}" in text or says in text
    bed.check_nothing_happened()
    bed.check_good_push()


@pytest.mark.parametrize("message", [A, END], ids=["chunk", "end"])
def test_b24_nothing_of_a_push_comes_before_its_header(bed: Bed, message: PushPullRequest) -> None:
    status, reason, text = bed.worker.attach().send(message).refusal()
    assert (status, reason, text) == (INVALID, "INVALID_PUSH", "a chunk or an end without a header")
    bed.check_nothing_happened()
    bed.check_good_push()


def test_b24_a_message_that_no_chunk_needs_is_refused_by_grpc(bed: Bed) -> None:
    stream = bed.worker.attach().send(PushPullRequest(header=bed.header()), bare(0, 2 << 20))
    assert stream.refusal()[0] is grpc.StatusCode.RESOURCE_EXHAUSTED
    bed.check_nothing_happened()
    bed.check_good_push()


FOREIGN: dict[str, tuple[Callable[[Bed], Messages], str]] = {
    "another-run": (set_id("run", 1), "WRONG_RUN"),
    "another-generation": (set_id("generation", 1), "ROLLED_BACK"),
    "another-worker": (set_id("worker", 1), "FENCED"),
    "another-life": (set_id("incarnation", 1), "FENCED"),
}


@pytest.mark.parametrize(("messages", "expected"), FOREIGN.values(), ids=FOREIGN)
@pytest.mark.parametrize("asked", [False, True], ids=["push", "ask"])
def test_foreign_messages_are_refused(
    bed: Bed, messages: Callable[[Bed], Messages], expected: str, asked: bool
) -> None:
    sent = messages(bed)
    if asked:
        question = ask(bed)
        assert isinstance(sent[0], PushPullRequest)
        question.ask.id.CopyFrom(sent[0].header.id)
        sent = [question]
    status, reason, _ = bed.worker.attach().send(*sent).refusal()
    assert (status, reason) == (PRECONDITION, expected)
    bed.check_nothing_happened()
    bed.check_good_push()


@pytest.mark.parametrize(("batch", "step"), [(1, 0), (0, 1)])
def test_b18_a_push_for_what_was_not_handed_out_costs_its_worker_the_membership(
    bed: Bed, batch: int, step: int
) -> None:
    messages = bed.good()
    assert isinstance(messages[0], PushPullRequest)
    messages[0].header.batch, messages[0].header.base_step = batch, step
    status, reason, text = bed.worker.attach().send(*messages).refusal()
    assert (status, reason) == (INVALID, "INVALID_PUSH")
    assert f"push 2 of worker 0 is for batch {batch} at step {step}; it holds batch 0 at step 0" in text
    bed.check_nothing_happened()
    bed.worker.join([SPEC])
    stream = bed.worker.attach().send(bed.worker.ask(0))
    assert stream.answer()[0].release.batch == 0
    stream.send(*bed.good(sequence=1))
    assert stream.answer()[0].result.outcome == Outcome.OUTCOME_APPLIED


def ended(stream: RawStream) -> None:
    stream.end()
    assert stream.refusal()[0] is grpc.StatusCode.OK


@pytest.mark.parametrize("count", [0, 1, 2])
@pytest.mark.parametrize("breaks", [RawStream.cancel, ended], ids=["cancelled", "half-closed"])
def test_b24_a_stream_that_ends_in_the_middle_leaves_nothing(
    bed: Bed, count: int, breaks: Callable[[RawStream], None]
) -> None:
    stream = bed.worker.attach()
    assert bed.cluster.staged_bytes() == [SIZE]
    stream.send(*bed.good()[:count])
    breaks(stream)
    bed.check_nothing_happened()
    bed.check_good_push()


def test_a_push_sent_again_is_applied_once(bed: Bed) -> None:
    first = bed.worker.attach().send(*bed.good())
    answer, _ = first.answer()
    assert answer.global_step == 1
    again = bed.worker.attach().send(*bed.good(), bed.worker.ask(2))
    answer, image = again.answer()
    assert (answer.result.sequence, answer.result.outcome, answer.result.repeated) == (2, Outcome.OUTCOME_APPLIED, True)
    assert (answer.global_step, image) == (1, floats(600, -0.5))
