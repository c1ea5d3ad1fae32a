"""Synchronous rounds with a backup worker: the first N count, and whoever is late is told."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from history import History, wait_for
from light_worker import Outcome, run_worker, run_workers, scalar
from local_cluster import LocalCluster

from grpc_ps.client import ClusterStatus, PSClient
from grpc_ps.psserver.lead.log import Answer

ROUNDS = 60
SLOW_UNTIL = 40
ROUNDS_EACH = 10
SLOW = 2
PARAMETERS = [scalar("w"), scalar("v")]
PRESETS = {"mode": "sync", "workers": 2, "backup": 1, "steps": ROUNDS, "learning_rate": 2.0**-10}


class Pace:
    """Who computes for how long, told by steps instead of seconds.

    Until step `SLOW_UNTIL` worker `SLOW` takes `ROUNDS_EACH` rounds for a gradient: the others wait for it to begin the
    next one then, however slow it is by itself. Then all are equally fast: in each round another one of the three is
    the last.
    """

    def __init__(self, cluster: LocalCluster) -> None:
        self._cluster = cluster
        self._history = cluster.history
        self._begun = -1
        self.shown: list[ClusterStatus] = []

    def gradient(
        self, worker: int, batch: int, parameters: Mapping[str, np.ndarray]
    ) -> tuple[dict[str, np.ndarray], int]:
        # Every gradient is 1, so the parameters tell the step they are of.
        (step,) = {round(float(value) * -1024) for value in parameters.values()}
        if step < SLOW_UNTIL:
            if worker == SLOW:
                self._begun = step
                self._history.until_step(min(step + ROUNDS_EACH, SLOW_UNTIL))
                with PSClient(self._cluster.addresses, timeout=20.0) as client:
                    self.shown.append(client.status())
            else:
                wait_for(lambda: self._begun >= step // ROUNDS_EACH * ROUNDS_EACH, f"worker {SLOW} at step {step}")
        elif worker == step % 3:
            self._history.until_step(min(step + 1, ROUNDS))
        return {name: np.ones_like(array) for name, array in parameters.items()}, 1


@dataclass
class Run:
    """One run of 60 rounds, which the tests look at."""

    history: History
    done: list[Outcome]
    shown: ClusterStatus


@pytest.fixture(scope="module")
def run() -> Run:
    with LocalCluster(2, presets=PRESETS) as cluster:
        pace = Pace(cluster)
        done = run_workers(3, lambda number: run_worker(cluster.addresses, PARAMETERS, pace.gradient, index=number))
        assert cluster.wait_ended() == [None, None]
    return Run(cluster.history, done, pace.shown[-1])


def test_b30_every_round_is_the_same_two_gradients_of_its_step_on_both_shards(run: Run) -> None:
    """Fault B30: exactly N of N + K, whoever is slow."""
    run.history.wait_equal()
    assert [len(updates) for updates in run.history.updates] == [ROUNDS, ROUNDS]
    run.history.check_rounds(lambda update: 2)
    for outcome in run.done:
        assert outcome.global_step == ROUNDS
        assert {float(value) for value in outcome.parameters.values()} == {-ROUNDS / 1024}


def test_b30_every_push_has_one_outcome_and_its_sender_knows_it(run: Run) -> None:
    """Fault B30: accepted + late + done = pushes sent, for each worker, as it counts and as the lead does."""
    told = run.history.outcomes()
    opener = told[next(answer.worker for answer in run.history.of(Answer))]
    opener["APPLIED"] -= 1  # its initial values
    for outcome in run.done:
        assert outcome.outcomes.total() == outcome.sent
        assert +told[outcome.worker] == outcome.outcomes
    assert sum(outcome.outcomes["APPLIED"] for outcome in run.done) == 2 * ROUNDS
    assert run.done[SLOW].outcomes["LATE"] > 0


def test_b30_the_late_worker_gets_new_parameters_and_is_accepted_once_it_is_fast(run: Run) -> None:
    """Fault B30: while it takes ten rounds it is late; within three of its own rounds after that it is not."""
    answers = [answer for answer in run.history.of(Answer) if answer.worker == SLOW and answer.result]
    late = [answer for answer in answers if answer.result.outcome == "LATE"]
    steps = [answer.step for answer in late]
    assert len([step for step in steps if step <= SLOW_UNTIL]) >= 3
    assert steps == sorted(set(steps))
    assert all(answer.release for answer in late if answer.step < ROUNDS), "told, and not given parameters"
    # Answers from the first one on whose parameters it computed fast with.
    fast = [answer for answer in answers if answer.step >= SLOW_UNTIL]
    assert "APPLIED" in [answer.result.outcome for answer in fast[1:4]]
    assert [answer.result.outcome for answer in fast].count("APPLIED") >= (ROUNDS - SLOW_UNTIL) // 3


def test_b30_no_batch_number_is_lost(run: Run) -> None:
    """Fault B30: what a late push had is computed again; only what the end left open was not used."""
    used = run.history.applied_batches()
    assert len(used) == len(set(used)) == 2 * ROUNDS
    unused = set(range(max(used) + 1)) - set(used)
    # At the end each of three workers may hold one.
    assert len(unused) <= 3


def test_b30_the_status_counts_what_was_late(run: Run) -> None:
    """Fault B30: the late ones can be seen while the job runs."""
    (slow,) = [worker for worker in run.shown.workers if worker.worker == SLOW]
    assert 3 <= slow.late <= run.done[SLOW].outcomes["LATE"]
    assert sum(worker.applied for worker in run.shown.workers) == 2 * run.shown.global_step
