"""The queue of jobs: order, every way for a job to end, and what is remembered."""

from __future__ import annotations

import pytest

from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.queue import CANCELLED, MAX_ENDED, MAX_QUEUED, Queue, QueuedJob, Reading, Submission
from grpc_ps.psserver.lead.refusal import Refusal


def queue_of(count: int) -> Queue:
    queue = Queue()
    for number in range(count):
        queue.submit(Submission(model="linear", name=f"n{number}"), at=float(number))
    return queue


def begin_next(queue: Queue, at: float = 10.0) -> QueuedJob:
    job = queue.queued()[0]
    queue.begin(job, run=1000 + job.number, at=at)
    return job


def refusal(queue: Queue, number: int) -> tuple[str, str]:
    with pytest.raises(Refusal) as refused:
        queue.cancel(number, at=20.0)
    return refused.value.reason, refused.value.detail


def test_jobs_are_carried_out_in_order_of_their_numbers_one_at_a_time() -> None:
    queue = queue_of(3)
    assert [job.number for job in queue.queued()] == [1, 2, 3]
    first = begin_next(queue)
    assert (queue.current, first.state, first.run, first.started) == (first, "STARTING", 1001, 10.0)
    with pytest.raises(AssertionError, match="one job at a time"):
        begin_next(queue)
    queue.joined()
    assert first.state == "RUNNING"
    assert queue.end(Done(), Reading(global_step=50), at=30.0) is first
    assert (first.state, first.exit_code, first.ended, first.last.global_step) == ("DONE", 0, 30.0, 50)
    assert queue.current is None
    assert begin_next(queue).number == 2
    assert queue.submit(Submission(model="linear"), at=31.0).number == 4


@pytest.mark.parametrize(
    ("done", "state", "code", "reason"),
    [
        (Done(), "DONE", 0, ""),
        (Done(0, "accuracy>=0.9"), "DONE", 0, "accuracy>=0.9"),
        (Done(3, "w: data is missing"), "FAILED", 3, "w: data is missing"),
        (Done(5, "NaN"), "FAILED", 5, "NaN"),
    ],
)
def test_the_ends_of_a_job(done: Done, state: str, code: int, reason: str) -> None:
    queue = queue_of(2)
    job = begin_next(queue)
    queue.end(done, Reading(), at=30.0)
    assert (job.state, job.exit_code, job.reason) == (state, code, reason)
    assert [waiting.number for waiting in queue.queued()] == [2], "a job that ends, however, blocks nobody"


def test_a_job_that_waits_is_taken_out() -> None:
    queue = queue_of(3)
    assert queue.cancel(2, at=5.0) is False
    assert queue.cancel(2, at=6.0) is False
    job = queue.get(2)
    assert (job.state, job.exit_code, job.ended) == ("CANCELLED", CANCELLED, 5.0)
    assert [waiting.number for waiting in queue.queued()] == [1, 3]


@pytest.mark.parametrize("joined", [True, False])
def test_a_job_that_is_carried_out_is_cancelled_when_its_workers_have_gone(joined: bool) -> None:
    queue = queue_of(1)
    job = begin_next(queue)
    if joined:
        queue.joined()
    assert queue.cancel(1, at=20.0) is True
    assert (job.state, queue.current) == ("RUNNING" if joined else "STARTING", job)
    queue.end(Done(0, "cancelled on request"), Reading(global_step=9), at=21.0)
    assert (job.state, job.exit_code, job.reason) == ("CANCELLED", CANCELLED, "cancelled at global step 9")


def test_what_cannot_be_cancelled() -> None:
    queue = queue_of(2)
    assert refusal(queue, 7) == ("USAGE", "there is no job 7; those that are known: 1 to 2")
    assert refusal(Queue(), 1) == ("USAGE", "there is no job 1; those that are known: none")
    begin_next(queue)
    queue.end(Done(), Reading(), at=20.0)
    begin_next(queue)
    queue.end(Done(5, "NaN"), Reading(), at=20.0)
    assert refusal(queue, 1) == ("USAGE", "job 1 has ended: done")
    assert refusal(queue, 2) == ("USAGE", "job 2 has ended: failed")


def test_the_queue_and_what_is_remembered_are_bounded() -> None:
    queue = queue_of(MAX_QUEUED)
    with pytest.raises(Refusal, match=r"^FULL: 100 jobs wait already"):
        queue.submit(Submission(model="linear"), at=0.0)
    begin_next(queue)
    for _ in range(MAX_ENDED + 5):
        queue.submit(Submission(model="linear"), at=0.0)
        queue.end(Done(), Reading(), at=20.0)
        begin_next(queue)
    ended = [job.number for job in queue if job.ended is not None]
    assert ended == list(range(6, MAX_ENDED + 6))
    assert queue.current is not None
    assert len(list(queue)) == MAX_ENDED + 1 + len(queue.queued())
