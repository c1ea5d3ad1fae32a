"""Mode, N, K and the bound changed while the job runs, at random: every update follows the rules of its position."""

from __future__ import annotations

import random
import threading
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from history import DEADLINE, History, wait_for
from light_worker import Outcome, constant, gathered, run_worker, run_workers, scalar
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import Mismatch
from grpc_ps.psserver.lead.log import Answer, Apply, Stop

STEPS, CHANGES, WORKERS = 400, 20, 4
Steered = tuple[History, "Changes", list[Outcome]]
PRESETS = {"learning_rate": 2.0**-10, "steps": STEPS, "mode": "async", "workers": 2}


class Changes:
    """Notes between which entries of the log each change of the settings took place.

    Args:
        due: for each change the step at which nobody computes before it has been made: else the job may be over first.
    """

    def __init__(self, cluster: LocalCluster, due: Sequence[int] = ()) -> None:
        self._history = cluster.history
        self._due = due
        job: Any = cluster.servers[0]._coordinator.job  # type: ignore[union-attr]  # shard 0 has one
        change = job.change
        self.positions: list[int] = []
        self.settings: list[dict[str, Any]] = [{**PRESETS, "backup": 0}]

        def noted(what: Any, now: float) -> None:
            position = job.log.position
            # What follows from the change at once is behind it.
            change(what, now)
            self.positions.append(position)
            self.settings.append(dict(job.definition.settings))

        job.change = noted

    def at(self, position: int) -> dict[str, Any]:
        """The settings that an entry was written under."""
        return self.settings[bisect_left(self.positions, position)]

    def gradient(self, worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Mapping[str, np.ndarray], int]:
        """Ones, once the changes have been made that are due."""
        wanted = bisect_right(self._due, self._history.step)
        wait_for(lambda: len(self.positions) >= wanted, f"{wanted} changes")
        return constant(1.0)(worker, batch, parameters)


class Steering:
    """Changes the job `CHANGES` times, at steps that a seed chooses."""

    def __init__(self, cluster: LocalCluster, seed: int) -> None:
        self._cluster = cluster
        self._chance = random.Random(seed)
        self._steps = sorted(self._chance.sample(range(10, STEPS - 10), CHANGES))
        self.changes = Changes(cluster, [step + 5 for step in self._steps])

    def draw(self) -> dict[str, Any]:
        """Something possible with four workers."""
        workers = self._chance.randint(1, WORKERS)
        change = {
            "mode": self._chance.choice(["async", "sync", "sync"]),
            "workers": workers,
            "backup": self._chance.randint(0, WORKERS - workers + 1),
            "max_staleness": self._chance.choice([-1, 0, 1, 5]),
        }
        return {name: value for name, value in change.items() if name == "mode" or self._chance.random() < 0.7}

    def run(self) -> None:
        with PSClient(self._cluster.addresses, timeout=DEADLINE) as client:
            for step in self._steps:
                self._cluster.history.until_step(step)
                client.set(**self.draw())


@pytest.mark.parametrize("seed", range(4))
def test_twenty_random_changes_break_no_rule(seed: int) -> None:
    """400 steps with four workers, and the job ends at its step."""
    with LocalCluster(2, presets=PRESETS) as cluster:
        steering = Steering(cluster, seed)
        thread = threading.Thread(target=steering.run, daemon=True)
        thread.start()
        gradient = gathered(cluster, WORKERS, steering.changes.gradient)
        done = run_workers(WORKERS, lambda _: run_worker(cluster.addresses, [scalar("w"), scalar("v")], gradient))
        thread.join(DEADLINE)
        assert cluster.wait_ended() == [None, None]
    history = cluster.history
    assert len(steering.changes.positions) == CHANGES
    history.wait_equal()
    history.check()
    check_updates(history, steering.changes)
    (end,) = history.of(Stop)
    assert (end.step, end.done.exit_code, end.done.reason) == (STEPS, 0, "")
    for outcome in done:
        assert {float(value) for value in outcome.parameters.values()} == {-STEPS / 1024}
        assert outcome.outcomes.total() == outcome.sent
    unused = set(range(max(history.applied_batches()) + 1)) - set(history.applied_batches())
    assert len(unused) <= WORKERS, "numbers were lost"


def check_updates(history: History, changes: Changes) -> None:
    """In sync exactly N of the step, of different workers; in async one."""
    modes: Counter[str] = Counter()
    for update in history.updates[0]:
        rules = changes.at(update.position)
        wanted = int(rules["workers"]) if rules["mode"] == "sync" else 1
        assert len(update.pushes) == wanted, (update, rules)
        assert len({used.push.worker for used in update.pushes}) == wanted, update
        if rules["mode"] == "sync":
            assert {used.base_step for used in update.pushes} == {update.step - 1}, (update, rules)
        modes[str(rules["mode"])] += 1
    assert min(modes["sync"], modes["async"]) > 0, "the changes never changed the mode"


def steered(
    presets: dict[str, Any], workers: int, steer: Callable[[LocalCluster, PSClient], None], due: Sequence[int]
) -> Steered:
    """Runs a job to its end while `steer` changes it, each time before the step that is due."""
    with LocalCluster(2, presets={**PRESETS, **presets}) as cluster, PSClient(cluster.addresses, timeout=20) as client:
        changes = Changes(cluster, due)
        gradient = gathered(cluster, workers, changes.gradient)
        thread = threading.Thread(target=steer, args=(cluster, client), daemon=True)
        thread.start()
        done = run_workers(workers, lambda _: run_worker(cluster.addresses, [scalar()], gradient))
        thread.join(DEADLINE)
        assert cluster.wait_ended() == [None, None]
    return cluster.history, changes, done


def test_a_pause_gives_nobody_anything_new_and_ends() -> None:
    """Workers finish what they compute; then nothing is applied until the job goes on, to its step."""
    stood: list[int] = []

    def steer(cluster: LocalCluster, client: PSClient) -> None:
        cluster.history.until_step(20)
        client.set(paused=True)
        # What was computed meanwhile still counts; then everybody waits.
        wait_for(lambda: {worker.activity for worker in client.status().workers} == {"paused"}, "a pause")
        stood.append(cluster.history.step)
        client.set(paused=False)

    history, changes, done = steered({"steps": 60}, 3, steer, due=[40])
    paused, resumed = changes.positions
    between = [entry for at, entry in history.entries[0] if paused < at <= resumed]
    assert not [entry for entry in between if isinstance(entry, Answer) and entry.release]
    assert len([entry for entry in between if isinstance(entry, Apply)]) <= 3
    assert [update.step for update in history.updates[0] if update.position <= resumed][-1:] == stood
    assert {outcome.global_step for outcome in done} == {60}
    assert sum(outcome.outcomes["APPLIED"] for outcome in done) == 60


def test_the_learning_rate_factor_holds_from_its_position_on() -> None:
    def steer(cluster: LocalCluster, client: PSClient) -> None:
        for step, factor in ((10, 2.0), (20, 0.5)):
            cluster.history.until_step(step)
            client.set(learning_rate_factor=factor)

    history, changes, (done,) = steered({"steps": 40}, 1, steer, due=[15, 30])
    rates = [
        (bisect_left(changes.positions, at), entry.learning_rate)
        for at, entry in history.entries[0]
        if isinstance(entry, Apply)
    ]
    assert {period for period, _ in rates} == {0, 1, 2}
    assert all(rate == (1.0, 2.0, 0.5)[period] / 1024 for period, rate in rates)
    assert float(done.parameters["w"]) == -sum(rate for _, rate in rates)


def test_what_is_not_possible_is_refused_and_changes_nothing() -> None:
    """More workers than there are, or impossible values: MISMATCH, and the job goes on as before."""
    with LocalCluster(1, presets={**PRESETS, "steps": 0}) as cluster, PSClient(cluster.addresses, timeout=20) as client:
        session = client.join("test", [scalar()])
        session.open(session.parameters)
        session.begin()
        before = client.status().settings
        for change, text in (
            ({"mode": "sync", "workers": 3}, "workers 3: the job has 1 now"),
            ({"workers": 0}, "workers 0 must be at least 1"),
            ({"mode": "both"}, "mode 'both' must be one of async, sync"),
            ({"min_workers": 5}, "min_workers 5 is more than workers 2"),
            ({"learning_rate_factor": 0.0}, "learning_rate_factor 0.0 must be"),
        ):
            with PSClient(cluster.addresses) as other, pytest.raises(Mismatch, match=text):
                other.set(**change)  # type: ignore[arg-type]
        assert client.status().settings == before
        assert client.push(session.parameters).outcome == "APPLIED"
