"""Stale synchronous parallel: nobody computes while too far ahead of the slowest."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from history import History, wait_for
from light_worker import Crash, Outcome, run_worker, run_workers, scalar
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.psserver.lead.log import Answer, Apply, Dismiss

BOUND = 2
SLOW = 0
PRESETS = {"max_staleness": BOUND, "learning_rate": 2.0**-10}
ONE = {"w": np.ones((), np.float32)}

Gradient = Callable[[int, int, Mapping[str, Any]], tuple[Mapping[str, np.ndarray], int]]


def applied(history: History) -> Counter[int]:
    """Applied pushes by worker."""
    return Counter(used.push.worker for update in history.updates[0] for used in update.pushes)


def released(history: History) -> set[int]:
    """Workers that have had parameters."""
    return {entry.worker for _, entry in history.entries[0] if isinstance(entry, Answer) and entry.release}


def leashed(cluster: LocalCluster, rounds: int, *, crash: bool) -> Gradient:
    """Gradients of three workers, of which `SLOW` takes as long as the others may run ahead.

    After `rounds` it is as fast as they are, or is killed.
    """
    history = cluster.history

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Mapping[str, np.ndarray], int]:
        history.until(lambda: len(released(history)) >= 3)
        mine = applied(history)[SLOW]
        if worker == SLOW and mine < rounds:
            history.until(lambda: all(applied(history)[other] == mine + BOUND + 1 for other in (1, 2)))
            wait_for(lambda: held_back(cluster) == [1, 2], "the others to wait")
            if crash and mine == rounds - 1:
                raise Crash
        return ONE, 1

    return gradient


def held_back(cluster: LocalCluster) -> list[int]:
    """Workers that wait for the slowest, as the status says."""
    with PSClient(cluster.addresses, timeout=20.0) as client:
        return [it.worker for it in client.status().workers if it.activity == "ahead of the slowest"]


def check_counts(history: History) -> None:
    """At every entry: counts differ by at most S + 1, and whoever gets parameters is at most S ahead of a live one."""
    counts: Counter[int] = Counter()
    live = {0, 1, 2}
    started = False
    for _, entry in history.entries[0]:
        if isinstance(entry, Apply):
            counts.update(push.worker for push, _ in entry.pushes)
        elif isinstance(entry, Dismiss):
            live.discard(entry.worker)
        elif isinstance(entry, Answer) and entry.release and (started := started or entry.step > 0):
            assert counts[entry.worker] - min(counts[worker] for worker in live) <= BOUND, entry
        if live:
            assert max(counts[worker] for worker in live) - min(counts[worker] for worker in live) <= BOUND + 1, entry


def test_nobody_computes_while_more_than_the_bound_ahead() -> None:
    with LocalCluster(2, presets={**PRESETS, "steps": 60}) as cluster:
        gradient = leashed(cluster, 8, crash=False)
        done = run_workers(3, lambda number: run_worker(cluster.addresses, [scalar()], gradient, index=number))
        assert cluster.wait_ended() == [None, None]
    cluster.history.check()
    check_counts(cluster.history)
    assert sum(outcome.outcomes["APPLIED"] for outcome in done) == 60
    assert {float(outcome.parameters["w"]) for outcome in done} == {-60 / 1024}


def test_losing_the_slowest_frees_the_others_after_its_lease() -> None:
    with LocalCluster(2, presets={**PRESETS, "steps": 60}) as cluster:
        gradient = leashed(cluster, 4, crash=True)

        def work(number: int) -> Outcome:
            outcome = run_worker(cluster.addresses, [scalar()], gradient, index=number)
            if number == SLOW:
                cluster.end_lease(SLOW)
            return outcome

        done = run_workers(3, work)
        assert cluster.wait_ended() == [None, None]
    history = cluster.history
    history.check()
    check_counts(history)
    (lost,) = [place for place, (_, entry) in enumerate(history.entries[0]) if _lost(entry)]
    before = Counter(
        push.worker for _, entry in history.entries[0][:lost] if isinstance(entry, Apply) for push, _ in entry.pushes
    )
    assert before == {SLOW: 3, 1: 6, 2: 6}
    assert [outcome.outcomes["APPLIED"] for outcome in done][SLOW] == 3
    assert sum(outcome.outcomes["APPLIED"] for outcome in done) == 60


def _lost(entry: object) -> bool:
    return isinstance(entry, Dismiss) and entry.worker == SLOW and entry.reason == "FENCED"


def test_a_newcomer_begins_at_the_count_of_the_slowest() -> None:
    """Whoever comes late neither waits for the others nor lets them run away."""
    with LocalCluster(1, presets=PRESETS) as cluster:
        history = cluster.history
        run_worker(cluster.addresses, [scalar()], lambda *_: (ONE, 1), pushes=20)

        def late(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Mapping[str, np.ndarray], int]:
            if worker == 1:
                history.until(lambda: applied(history)[0] - 20 == len(seen) + BOUND + 1)
                seen.append(applied(history)[0])
            else:
                history.until(lambda: 1 in released(history))
            return ONE, 1

        seen: list[int] = []

        def work(number: int) -> Outcome:
            return run_worker(cluster.addresses, [scalar()], late, index=number, pushes=(9, 6)[number])

        run_workers(2, work)
    assert seen == [23, 24, 25, 26, 27, 28]
