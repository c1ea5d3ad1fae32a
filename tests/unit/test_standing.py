"""Workers that stand by: who gets the present job, and when nobody can carry it out."""

from __future__ import annotations

from typing import Any

import pytest

from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.queue import Queue, QueuedJob, Submission
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.settings import complete
from grpc_ps.psserver.lead.standing import (
    LOST_SECONDS,
    MAX_LOST,
    MAX_STANDING,
    TRIES,
    Ended,
    Standing,
    StandingWorker,
    places,
)


def job_with(run: int = 7) -> QueuedJob:
    queue = Queue()
    job = queue.submit(Submission(model="linear"), at=0.0)
    queue.begin(job, run, at=1.0)
    return job


def stand(standing: Standing, *nonces: int, now: float = 0.0) -> list[StandingWorker]:
    return [standing.call(nonce, f"host:{nonce}", 0, now) for nonce in nonces]


def fail(standing: Standing, worker: StandingWorker, code: int, run: int = 7, reason: str = "why") -> None:
    standing.ended(worker, Ended(run=run, exit_code=code, reason=reason if code else ""), present=7)


def test_a_job_takes_as_many_workers_as_it_has_places() -> None:
    standing, job = Standing(lease=10.0), job_with()
    workers = stand(standing, 1, 2, 3)
    assert [standing.take(worker, job, places=2) for worker in workers] == [True, True, False]
    assert (standing.carriers(job), workers[2].carrying) == (2, 0)
    assert not standing.take(workers[0], job, places=9), "it carries the job out already"
    standing.leave(1)
    assert standing.take(workers[2], job, places=2), "the place of one that has gone is free"


def test_an_answer_that_was_lost_is_given_again() -> None:
    standing, job = Standing(lease=10.0), job_with()
    (worker,) = stand(standing, 1)
    assert standing.take(worker, job, places=1)
    (again,) = stand(standing, 1)
    assert again is worker
    assert standing.take(again, job, places=1)
    assert standing.call(1, "host:1", 7, 0.0).carrying == 7
    assert standing.carriers(job) == 1


@pytest.mark.parametrize("code", [4, 3])
def test_an_end_that_is_told_again_counts_once(code: int) -> None:
    """Its answer, which gave the job again, was lost: the worker tells it with the next call, as the same part."""
    standing, job = Standing(lease=10.0), job_with()
    (worker,) = stand(standing, 1)
    for part in range(1, TRIES + 1):
        assert standing.take(worker, job, places=1) is (code == 4 or part == 1)
        for first in (True, False, False):
            told = standing.ended(worker, Ended(run=7, exit_code=code, reason=f"why {part}", part=part), present=7)
            assert told is first
            standing.take(worker, job, places=1)
            standing.call(1, "host:1", 0, 0.0)
        assert worker.failures == part
    assert standing.failure(job) == Done(code, "host:1: why 1")
    (again,) = [standing.call(1, "host:1", 0, 0.0)]
    assert standing.ended(again, Ended(run=7, exit_code=code, reason="who does not count"), present=7)


def test_a_call_that_a_later_one_has_overtaken_says_nothing() -> None:
    """A held call whose connection broke looks again when the worker has been given the job by the next one."""
    standing, job = Standing(lease=10.0), job_with()
    worker = standing.call(1, "host:1", 0, 0.0, number=1)
    assert standing.call(1, "host:1", 0, 1.0, number=2) is worker
    assert standing.take(worker, job, places=1)
    assert not standing.waits(worker, 1, 9.0)
    standing.call(1, "host:1", 0, 9.0, number=1)
    assert (worker.carrying, worker.last, standing.carriers(job)) == (7, 1.0, 1)
    assert standing.waits(worker, 2, 9.0)
    assert worker.last == 9.0
    standing.leave(1)
    assert not standing.waits(worker, 2, 9.0), "who has gone is not there again for a call that was held"
    assert (len(standing), standing.carriers(job)) == (0, 0)


def test_ten_thousand_workers_that_wait_are_looked_at_without_looking_at_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    standing, job = Standing(lease=10.0), job_with()
    workers = stand(standing, *range(1, MAX_STANDING + 1))
    monkeypatch.setattr(Standing, "__iter__", None)
    assert sum(standing.take(worker, job, places=64) for worker in workers) == 64
    assert standing.carriers(job) == 64


def test_a_worker_that_is_silent_for_a_lease_is_gone_and_its_place_free() -> None:
    standing, job = Standing(lease=10.0), job_with()
    one, two = stand(standing, 1, 2)
    assert standing.take(one, job, places=1)
    standing.call(2, "host:2", 0, now=8.0)
    assert standing.expire(now=10.0) == []
    assert standing.expire(now=10.1) == [one]
    assert standing.take(two, job, places=1)
    assert len(standing) == 1


def test_who_vanished_is_remembered_for_people() -> None:
    standing = Standing(lease=10.0)
    one, two, _ = stand(standing, 1, 2, 3)
    standing.leave(3)
    standing.call(2, "host:2", 0, now=5.0)
    standing.expire(now=11.0)
    assert standing.lost == [one], "who says that it goes is not lost"
    standing.expire(now=16.0)
    assert standing.lost == [one, two]
    stand(standing, 1, now=17.0)
    assert standing.lost == [two], "it has come back"
    standing.expire(now=5.0 + LOST_SECONDS + 1)
    assert [worker.nonce for worker in standing.lost] == [1], "that was long ago"
    stand(standing, *range(100, 100 + MAX_LOST), now=20_000.0)
    standing.expire(now=20_011.0)
    assert [worker.nonce for worker in standing.lost] == list(range(100, 100 + MAX_LOST))


@pytest.mark.parametrize("code", [2, 3, 5, 6])
def test_what_would_fail_again_is_not_tried_again(code: int) -> None:
    standing, job = Standing(lease=10.0), job_with()
    (worker,) = stand(standing, 1)
    assert standing.take(worker, job, places=1)
    fail(standing, worker, code, reason="no such file")
    assert not standing.take(worker, job, places=1)
    assert standing.failure(job) == Done(code, "host:1: no such file")
    assert standing.take(worker, job_with(run=8), places=1), "the next job may do better"


@pytest.mark.parametrize("code", [1, 4, 137])
def test_what_may_end_better_is_tried_three_times(code: int) -> None:
    standing, job = Standing(lease=10.0), job_with()
    (worker,) = stand(standing, 1)
    for _ in range(TRIES):
        assert standing.failure(job) is None
        assert standing.take(worker, job, places=1)
        fail(standing, worker, code)
    assert not standing.take(worker, job, places=1)
    assert standing.failure(job) == Done(code, "host:1: why")


def test_a_job_has_failed_when_nobody_is_left_to_try_it() -> None:
    standing, job = Standing(lease=10.0), job_with()
    one, two, three = stand(standing, 1, 2, 3)
    assert standing.failure(job) is None, "nobody has tried"
    fail(standing, one, 3, reason="first")
    assert standing.failure(job) is None
    fail(standing, two, 5, reason="second")
    assert standing.failure(job) is None
    standing.leave(three.nonce)
    assert standing.failure(job) == Done(3, "host:1: first"), "the first reason is the job's"
    assert standing.first_failure() == "host:1: first"
    stand(standing, 4)
    assert standing.failure(job) is None, "a newcomer may"
    for nonce in (1, 2, 4):
        standing.leave(nonce)
    assert standing.failure(job) is None, "it waits for newcomers where nobody stands by"
    standing.begin()
    assert standing.first_failure() == ""


def test_of_all_failures_of_a_job_the_first_one_is_kept() -> None:
    """A process that is started again and again by somebody else is another worker each time."""
    standing, job = Standing(lease=1.0), job_with()
    for nonce in range(1, 2000):
        (worker,) = stand(standing, nonce, now=10.0 * nonce)
        standing.expire(10.0 * nonce)
        fail(standing, worker, 3, reason=f"failure {nonce}")
    assert standing.failure(job) == Done(3, "host:1: failure 1")
    held = [value for value in vars(standing).values() if isinstance(value, (dict, list))]
    assert sum(map(len, held)) == 1 + MAX_LOST


def test_a_process_of_a_job_that_is_over_is_no_failure_of_the_present_one() -> None:
    standing, job = Standing(lease=10.0), job_with()
    (worker,) = stand(standing, 1)
    fail(standing, worker, 4, run=6)
    assert standing.failure(job) is None
    assert standing.take(worker, job, places=1)


def test_a_process_that_ended_well_is_not_started_again_for_the_same_job() -> None:
    standing, job = Standing(lease=10.0), job_with()
    (worker,) = stand(standing, 1)
    assert standing.take(worker, job, places=1)
    fail(standing, worker, 0)
    assert not standing.take(worker, job, places=1)
    assert (standing.failure(job), worker.failure) == (None, "")


def test_what_a_process_says_whose_job_was_over_is_no_failure() -> None:
    standing = Standing(lease=10.0)
    (worker,) = stand(standing, 1)
    fail(standing, worker, 3, reason="no data")
    assert worker.failure == "no data"
    standing.ended(worker, Ended(run=6, exit_code=4, reason="that job is gone"), present=7, over=True)
    assert worker.failure == ""


def test_the_workers_are_bounded() -> None:
    standing = Standing(lease=10.0)
    stand(standing, *range(1, MAX_STANDING + 1))
    with pytest.raises(Refusal, match=r"^FULL: "):
        stand(standing, MAX_STANDING + 1)
    stand(standing, 5)


@pytest.mark.parametrize(
    ("stated", "members", "expected"),
    [
        ({}, 0, 64),
        ({}, 3, 3),
        ({"max_workers": 2}, 0, 2),
        ({"max_workers": 2}, 3, 2),
        ({"mode": "sync", "workers": 3, "backup": 1}, 0, 4),
        ({"mode": "sync", "workers": 3}, 3, 3),
    ],
)
def test_the_places_of_a_job(stated: dict[str, Any], members: int, expected: int) -> None:
    assert places(complete(stated), members) == expected
