"""Epochs: every example once per epoch in what was applied, whoever comes, goes or is killed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from history import History
from light_worker import Crash, Outcome, gathered, run_worker, run_workers
from local_cluster import LocalCluster

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.psserver.lead.log import Stop

EXAMPLES, EPOCHS = 100, 2


class Numbered:
    """Numbered examples in batches: a gradient has a 1 for each example that it was computed from.

    Args:
        killed: the worker that is killed while it computes, once `history` has come to step `at`.
    """

    def __init__(
        self, history: History, batch_size: int, examples: int = EXAMPLES, *, killed: int = -1, at: int = 0
    ) -> None:
        self._history = history
        self._size = batch_size
        self._examples = examples
        self._killed = killed
        self._at = at
        self.per_epoch = -(-examples // batch_size)
        self.spec = ParameterSpec(name="seen", shape=(EPOCHS, examples), dtype="float32")

    def indices(self, number: int) -> np.ndarray:
        """The examples of a batch, drawn anew for each epoch."""
        epoch, place = divmod(number, self.per_epoch)
        order = np.random.default_rng(epoch).permutation(self._examples)
        return order[place * self._size : (place + 1) * self._size]

    def gradient(self, worker: int, number: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if worker == self._killed and self._history.step >= self._at:
            self._killed = -1
            raise Crash
        seen = np.zeros(self.spec.shape, np.float32)
        indices = self.indices(number)
        seen[number // self.per_epoch, indices] = 1
        return {"seen": seen}, len(indices)

    def used(self) -> np.ndarray:
        """How often each example was applied, in each epoch: from the bytes that the shards applied."""
        total = np.zeros(self.spec.shape, np.float32)
        for update in self._history.updates[0]:
            for image in update.images:
                total += np.frombuffer(image, np.float32, total.size).reshape(total.shape)
        return total


def run(cluster: LocalCluster, data: Numbered, workers: int, **more: Any) -> list[Outcome]:
    """Workers that train to the end of the job, and one more in the place of whoever is killed."""
    cluster.history.keep_images = True
    gradient = gathered(cluster, workers, data.gradient)

    def work(number: int) -> Outcome:
        outcome = run_worker(cluster.addresses, [data.spec], gradient, index=number, **more)
        if outcome.last is None:  # it was killed
            cluster.end_lease(number)
            outcome = run_worker(cluster.addresses, [data.spec], gradient, index=number, **more)
        return outcome

    done = run_workers(workers, work)
    assert cluster.wait_ended() == [None] * len(cluster.servers)
    return done


@pytest.mark.parametrize("backup", [0, 1])
@pytest.mark.parametrize("mode", ["async", "sync"])
def test_every_example_is_used_once_an_epoch_though_a_worker_is_killed(mode: str, backup: int) -> None:
    """3 workers, 100 examples, 2 epochs, batch 7: 15 batches an epoch, the last of 2 examples."""
    presets = {
        "mode": mode,
        "workers": 3 - backup,
        "backup": backup if mode == "sync" else 0,
        "examples": EXAMPLES,
        "epochs": EPOCHS,
        "batch_size": 7,
        "learning_rate": 1.0,
    }
    with LocalCluster(1, presets=presets) as cluster:
        data = Numbered(cluster.history, 7, killed=1, at=5 if mode == "sync" else 10)
        done = run(cluster, data, 3)
    history = cluster.history
    assert done[1].lives == 1
    assert data.used().tolist() == np.ones((EPOCHS, EXAMPLES)).tolist()
    assert sorted(history.applied_batches()) == list(range(30))
    history.check()
    if mode == "async":
        # Each gradient was applied with rate 1, whole.
        assert done[1].parameters["seen"].tolist() == (-np.ones((EPOCHS, EXAMPLES))).tolist()
    elif not backup:
        # A round does not span epochs: five of three batches each.
        assert [len(update.pushes) for update in history.updates[0]] == [3] * 10
        history.check_rounds(lambda update: 3)


@pytest.mark.parametrize("shards", [1, 2])
def test_b28_the_last_round_of_an_epoch_is_smaller(shards: int) -> None:
    """Fault B28: sync, 2 workers, 101 examples in batches of 10, one epoch: 6 rounds, 5 of two batches, 1 of one."""
    presets = {"mode": "sync", "workers": 2, "examples": 101, "epochs": 1, "batch_size": 10}
    with LocalCluster(shards, presets=presets) as cluster:
        data = Numbered(cluster.history, 10, 101)
        done = run(cluster, data, 2)
    cluster.history.check_rounds(lambda update: 2 if update.step <= 5 else 1)
    assert [update.step for update in cluster.history.updates[0]] == [1, 2, 3, 4, 5, 6]
    assert [outcome.last.exit_code for outcome in done if outcome.last] == [0, 0]
    if shards == 1:
        assert data.used()[0].tolist() == [1] * 101


@pytest.mark.parametrize(("batches", "rounds"), [(3, [2, 1]), (5, [2, 2, 1]), (1, [1])])
def test_b28_backup_workers_do_not_make_an_epoch_wait(batches: int, rounds: list[int]) -> None:
    """Fault B28: 2 of 3, with fewer batches left than workers: the quorum is what is left, and the rest is told."""
    presets = {"mode": "sync", "workers": 2, "backup": 1, "examples": batches, "epochs": 1, "batch_size": 1}
    with LocalCluster(1, presets=presets) as cluster:
        data = Numbered(cluster.history, 1, batches)
        done = run(cluster, data, 3)
    assert [len(update.pushes) for update in cluster.history.updates[0]] == rounds
    assert data.used()[0].tolist() == [1] * batches
    assert [outcome.last.exit_code for outcome in done if outcome.last] == [0] * 3
    (end,) = cluster.history.of(Stop)
    assert (end.step, end.done.exit_code) == (len(rounds), 0)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_steps_end_a_job_of_epochs_first(mode: str) -> None:
    """The number of steps always wins, in the middle of an epoch."""
    presets = {"mode": mode, "workers": 2, "examples": 50, "epochs": 2, "batch_size": 5, "steps": 4}
    with LocalCluster(1, presets=presets) as cluster:
        data = Numbered(cluster.history, 5, 50)
        done = run(cluster, data, 2)
    assert {outcome.global_step for outcome in done} == {4}
    assert cluster.history.step == 4
