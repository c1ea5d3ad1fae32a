"""Streams that may not be attached, and several of one worker: no memory is taken for what is refused."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import grpc
import numpy as np
import pytest
from local_cluster import LocalCluster
from raw_bed import SIZE, SPEC, Bed, merged, opened_bed
from raw_worker import RawWorker, floats

from grpc_ps.protos.job_pb2 import JobSpec
from grpc_ps.protos.parameter_server_pb2 import Outcome, PushPullRequest
from grpc_ps.psserver import staging

INVALID = grpc.StatusCode.INVALID_ARGUMENT
PRECONDITION = grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture
def bed() -> Iterator[Bed]:
    with opened_bed() as opened:
        yield opened


@pytest.mark.parametrize(
    ("name", "add", "expected"),
    [("run", 1, "WRONG_RUN"), ("generation", 1, "ROLLED_BACK"), ("incarnation", -1, "FENCED")],
)
def test_foreign_streams_are_refused(bed: Bed, name: str, add: int, expected: str) -> None:
    attach = bed.worker.attach_message()
    setattr(attach.attach.id, name, getattr(attach.attach.id, name) + add)
    status, reason, _ = bed.worker.open_stream().send(attach).refusal()
    assert (status, reason) == (PRECONDITION, expected)
    bed.check_nothing_happened()
    bed.check_good_push()


@pytest.mark.parametrize("name", ["incarnation", "worker"])
def test_a_stream_of_nobody_is_refused_in_time(bed: Bed, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    attach = bed.worker.attach_message()
    setattr(attach.attach.id, name, getattr(attach.attach.id, name) + 1)
    with monkeypatch.context() as patch:
        patch.setattr(bed.cluster.servers[0]._replay, "patience", 0.1)
        status, reason, _ = bed.worker.open_stream().send(attach).refusal()
    assert (status, reason) == (grpc.StatusCode.UNAVAILABLE, "LOST")
    bed.check_nothing_happened()
    bed.check_good_push()


@pytest.mark.parametrize(
    ("first", "says"),
    [
        (lambda bed: bed.good()[0], "the first message of a training stream is `attach`"),
        (lambda bed: bed.worker.ask(1), "the first message of a training stream is `attach`"),
        (lambda bed: b"\xff\xff", "not a PushPullRequest"),
        (lambda bed: merged(bed.worker.attach_message(), bed.good()[0]), "`attach` stands alone"),
    ],
    ids=["header", "ask", "garbage", "attach-and-header"],
)
def test_a_stream_begins_with_attach_alone(bed: Bed, first: Callable[[Bed], PushPullRequest], says: str) -> None:
    status, reason, text = bed.worker.open_stream().send(first(bed)).refusal()
    assert (status, reason) == (INVALID, "INVALID_PUSH")
    assert says in text
    bed.check_nothing_happened()
    bed.check_good_push()


def other_job(job: JobSpec, change: str) -> JobSpec:
    other = JobSpec()
    other.CopyFrom(job)
    (parameter,) = other.parameters
    if change == "shape":
        parameter.shape[:] = [30, 20]
    elif change == "dtype":
        parameter.dtype = 2
    elif change == "name":
        parameter.name = "v"
    elif change == "none":
        del other.parameters[:]
    elif change == "rate":
        other.settings.learning_rate = 3.0
    return other


JOBS = [
    ("shape", "parameter 'w': the job has float32[20, 30], this worker's model has float32[30, 20]"),
    ("dtype", "parameter 'w': the job has float32[20, 30], this worker's model has float64[20, 30]"),
    ("name", "parameter 'v': the job has none of that name, this worker's model has float32[20, 30]"),
    ("none", "parameter 'w': the job has float32[20, 30], this worker's model has none of that name"),
    ("rate", "learning_rate: the job has 1.0, this worker has 3.0"),
]


@pytest.mark.parametrize(("change", "says"), JOBS)
def test_b18_an_attach_with_another_job_is_refused(bed: Bed, change: str, says: str) -> None:
    """Fault B18: blocks are positional on the wire, so another shape, type or name shows here."""
    attach = bed.worker.attach_message(other_job(bed.worker.job, change))
    assert bed.worker.open_stream().send(attach).refusal() == (PRECONDITION, "MISMATCH", says)
    bed.check_nothing_happened()
    bed.check_good_push()


@pytest.mark.parametrize(("change", "says"), JOBS)
def test_b18_an_opener_opens_the_job_that_the_lead_gave_it(change: str, says: str) -> None:
    with LocalCluster(1, presets={"learning_rate": 1.0}) as cluster, RawWorker(cluster.addresses) as worker:
        worker.join([SPEC])
        stream = worker.open_stream().send(worker.attach_message(other_job(worker.job, change)))
        assert stream.refusal() == (PRECONDITION, "MISMATCH", says)
        assert cluster.staged_bytes() == [0]
        worker.attach(worker.job)


def test_a_stream_that_takes_over_is_not_hurt_by_the_end_of_the_old_one(bed: Bed) -> None:
    old = bed.worker.attach().send(*bed.good(7.0)[:2])
    new = bed.worker.attach().send(*bed.good()[:2])
    # The old one is ended by the shard, and what it still sends is nobody's.
    old.send(bed.good(7.0)[2])
    assert old.refusal()[0] is grpc.StatusCode.OK
    assert bed.cluster.staged_bytes() == [SIZE]
    new.send(bed.good()[2])
    answer, image = new.answer()
    assert (answer.result.outcome, image) == (Outcome.OUTCOME_APPLIED, floats(600, -0.5))


def test_memory_that_cannot_be_had_is_refused_when_the_stream_attaches(
    bed: Bed, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_memory(nbytes: int) -> np.ndarray:
        raise MemoryError

    with monkeypatch.context() as patch:
        patch.setattr(staging, "aligned_buffer", no_memory)
        status, reason, text = bed.worker.open_stream().send(bed.worker.attach_message()).refusal()
    assert (status, reason) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "FULL")
    assert text == "no memory for the pushes of worker 0: 2432 bytes"
    bed.check_nothing_happened()
    bed.check_good_push()


def test_many_streams_of_one_member_have_one_place(bed: Bed) -> None:
    streams = [bed.worker.attach() for _ in range(20)]
    for stream in streams[:-1]:
        assert stream.refusal()[0] is grpc.StatusCode.OK
    assert bed.cluster.staged_bytes() == [SIZE]
    streams[-1].cancel()
    bed.check_nothing_happened()
    bed.check_good_push()
