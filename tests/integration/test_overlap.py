"""Workers that compute the next gradient while a push is exchanged: every push once, and one update staler."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from flaky_link import links_to
from light_worker import DEADLINE, constant, final_values, run_worker, run_workers, scalar
from local_cluster import LocalCluster
from real_worker import train_in

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import Mismatch
from grpc_ps.models.linear import Linear
from grpc_ps.psserver.lead.log import Answer, Entry

EXACT = {"optimizer": "sgd", "learning_rate": 2.0**-10}
PARAMETERS = [scalar("w"), scalar("v")]


def sums(values: Mapping[str, np.ndarray]) -> dict[str, float]:
    return {name: float(value) for name, value in values.items()}


def used(cluster: LocalCluster) -> list[Any]:
    """The pushes in the model, in order."""
    return [push for update in cluster.history.updates[0] for push in update.pushes]


def other_is_released(cluster: LocalCluster) -> bool:
    """Whether worker 1 holds a number."""
    entries = cluster.history.entries[0]
    return any(isinstance(entry, Answer) and entry.worker == 1 and entry.release for _, entry in entries)


@pytest.mark.parametrize("shards", [1, 2])
def test_no_update_is_lost_under_concurrency(shards: int) -> None:
    """8 workers x 100 pushes of gradient 1 are -0.78125 exactly, each of another batch."""
    with LocalCluster(shards, presets=EXACT) as cluster:
        done = run_workers(
            8, lambda _: run_worker(cluster.addresses, PARAMETERS, constant(1.0), pushes=100, overlap=True)
        )
        step, values = final_values(cluster.addresses)
    assert [dict(outcome.outcomes) for outcome in done] == [{"APPLIED": 100}] * 8
    assert (step, sums(values)) == (800, {"w": -0.78125, "v": -0.78125})
    assert len({push.batch for push in used(cluster)}) == 800


@pytest.mark.parametrize(("overlap", "staleness"), [(False, 0), (True, 1)])
def test_a_gradient_is_of_the_release_before_and_its_staleness_says_so(overlap: bool, staleness: int) -> None:
    seen: dict[int, float] = {}

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Mapping[str, np.ndarray], int]:
        seen[batch] = float(parameters["w"])
        return {name: np.ones_like(array) for name, array in parameters.items()}, 1

    with LocalCluster(2, presets={**EXACT, "steps": 50}) as cluster:
        run_worker(cluster.addresses, PARAMETERS, gradient, overlap=overlap)
    assert [push.base_step for push in used(cluster)] == [0, *(step - staleness for step in range(1, 50))]
    # What a gradient was computed with are the parameters of its base step, exactly.
    assert [seen[push.batch] for push in used(cluster)] == [-push.base_step / 1024 for push in used(cluster)]


def test_the_staleness_is_shown() -> None:
    found: list[Any] = []

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Mapping[str, np.ndarray], int]:
        if batch == 40:
            # It is counted whether the push before, which is on its way, is or not.
            cluster.history.until_step(39)
            with PSClient(cluster.addresses, timeout=DEADLINE) as client:
                found.extend(client.status().workers)
        return {name: np.ones_like(array) for name, array in parameters.items()}, 1

    with LocalCluster(1, presets={**EXACT, "steps": 50}) as cluster:
        run_worker(cluster.addresses, PARAMETERS, gradient, overlap=True)
    (worker,) = found
    assert (worker.staleness, worker.max_staleness) == (1, 1)
    assert worker.mean_staleness == pytest.approx((worker.applied - 1) / worker.applied)


def test_a_hint_that_does_not_come_true_is_computed_anew() -> None:
    """The other worker takes the number that was hinted; each number is pushed once all the same."""
    turn = threading.Event()

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Mapping[str, np.ndarray], int]:
        cluster.history.until(lambda: other_is_released(cluster))
        if worker == 1:
            assert turn.wait(DEADLINE)
        elif len(used(cluster)) >= 10:
            turn.set()
        return {name: np.ones_like(array) for name, array in parameters.items()}, 1

    with LocalCluster(2, presets={**EXACT, "steps": 100}) as cluster:
        done = run_workers(2, lambda _: run_worker(cluster.addresses, PARAMETERS, gradient, overlap=True))
        assert cluster.wait_ended() == [None, None]
    pushes = used(cluster)
    assert sums(done[0].parameters) == {"w": -100 / 1024, "v": -100 / 1024}
    assert len({push.batch for push in pushes}) == 100
    first = [push for push in pushes if push.push.worker == 0][:10]
    # With two members the hint is two further; while the other one does nothing, the next number comes.
    assert [step - push.base_step for step, push in enumerate(first)] == [0] * 10


@pytest.mark.parametrize(("shards", "cut", "dtype"), [(1, 0, "float32"), (2, 1, "float32"), (2, 0, "bfloat16")])
def test_each_push_counts_once_over_links_that_are_cut(shards: int, cut: int, dtype: str) -> None:
    presets = {**EXACT, "steps": 100, "push_dtype": dtype}
    with LocalCluster(shards, presets=presets) as cluster, links_to(cluster.addresses) as links:
        cuts = 0

        def break_off(shard: int, entry: Entry) -> None:
            nonlocal cuts
            answers = isinstance(entry, Answer) and entry.result and not entry.result.repeated and entry.step
            if shard == cut and answers and entry.step % 3 == 0:  # type: ignore[union-attr]
                cuts += 1
                links[cut].cut()

        cluster.history.hooks.append(break_off)
        addresses = ",".join(link.address for link in links)
        done = run_worker(addresses, PARAMETERS, constant(1.0), overlap=True)
        assert cluster.wait_ended() == [None] * shards
    cluster.history.check()
    assert cuts > 20
    assert dict(done.outcomes) == {"APPLIED": 100}
    assert sums(done.parameters) == {"w": -100 / 1024, "v": -100 / 1024}
    assert {step - push.base_step for step, push in enumerate(used(cluster))} == {0, 1}


def test_a_job_that_is_set_to_rounds_meanwhile() -> None:
    """What was computed ahead is late; from then on rounds are exact."""
    changed = threading.Event()

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Mapping[str, np.ndarray], int]:
        if len(used(cluster)) >= 30 and not changed.is_set():
            if worker == 0:
                with PSClient(cluster.addresses, timeout=DEADLINE) as client:
                    client.set(mode="sync", workers=2, backup=0)
                changed.set()
            # Else this one might make all the steps before worker 0 has come to that.
            assert changed.wait(DEADLINE)
        return {name: np.ones_like(array) for name, array in parameters.items()}, 1

    with LocalCluster(2, presets={**EXACT, "steps": 100}) as cluster:
        done = run_workers(2, lambda _: run_worker(cluster.addresses, PARAMETERS, gradient, overlap=True))
        assert cluster.wait_ended() == [None, None]
    cluster.history.check()
    assert sums(done[0].parameters) == {"w": -100 / 1024, "v": -100 / 1024}
    assert all(outcome.outcomes["LATE"] <= 2 for outcome in done)
    rounds = [update for update in cluster.history.updates[0] if len(update.pushes) == 2]
    assert len(rounds) > 50
    for update in rounds:
        assert {push.base_step for push in update.pushes} == {update.step - 1}


def test_a_gradient_that_is_not_finite_is_refused_and_the_one_computed_ahead_is_taken() -> None:
    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[Mapping[str, np.ndarray], int]:
        value = np.float32("nan") if batch % 10 == 3 else np.float32(1)
        return {name: np.full_like(array, value) for name, array in parameters.items()}, 1

    with LocalCluster(2, presets={**EXACT, "steps": 45}) as cluster:
        done = run_worker(cluster.addresses, PARAMETERS, gradient, overlap=True)
    assert dict(done.outcomes) == {"APPLIED": 45, "NON_FINITE": 5}
    assert sums(done.parameters) == {"w": -45 / 1024, "v": -45 / 1024}
    assert {push.batch % 10 for push in used(cluster)} == {0, 1, 2, 4, 5, 6, 7, 8, 9}


def test_a_real_worker_makes_no_push_beyond_the_last_step() -> None:
    with LocalCluster(1, presets={"steps": 60}) as cluster:
        (one,) = train_in(cluster, [Linear], overlap=True, stated={"mode": "async"})
        assert one.error is None
        assert cluster.wait_ended() == [None]
    assert one.summary["outcomes"] == {"APPLIED": 60}
    assert (one.summary["global_step"], one.summary["local_steps"]) == (60, 60)
    assert [push.batch for push in used(cluster)] == list(range(60))
    assert [push.base_step for push in used(cluster)] == [0, *range(59)]


def test_a_job_in_rounds_refuses_a_worker_that_would_overlap() -> None:
    with LocalCluster(1, presets={"mode": "sync", "workers": 1, "steps": 10}) as cluster:
        (one,) = train_in(cluster, [Linear], overlap=True, stated={"mode": "async"})
    text = r"^--overlap, which is for async: mode: shard 0 has 'sync', this worker has 'async'"
    with pytest.raises(Mismatch, match=text) as refused:
        raise one.error or AssertionError("it was not refused")
    assert refused.value.exit_code == 2


def test_a_model_learns_as_well() -> None:
    with LocalCluster(2, presets={"steps": 1500}) as cluster:
        (one,) = train_in(cluster, [Linear], overlap=True)
    assert one.error is None
    assert one.read.values["w"].item() == pytest.approx(0.1, abs=0.001)
    assert one.read.values["b"].item() == pytest.approx(0.3, abs=0.001)
