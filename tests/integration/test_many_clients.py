"""Many workers on few threads: nobody waits for a thread of the shard."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from history import wait_for
from light_worker import Outcome, constant, final_values, run_worker, run_workers, scalar
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec

CLIENTS = 50
EXACT = {"learning_rate": 2.0**-10}
# Two gradients of the larger one are updated in the thread for kernels, behind which nothing may wait but entries.
SIZES = {"on-the-loop": scalar(), "in-the-thread": ParameterSpec(name="w", shape=(400_000,), dtype="float32")}


class Poller:
    """Asks for the status again and again from a thread; each answer has a deadline, and all must come."""

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.steps: list[int] = []
        self.most_workers = 0
        self.error: BaseException | None = None

    def __enter__(self) -> Poller:
        self._thread.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self._stop.set()
        self._thread.join(30)

    def await_next(self) -> None:
        """Waits for an answer to a question that is asked from now on."""
        # The next one may be under way.
        enough = len(self.steps) + 2
        wait_for(lambda: len(self.steps) >= enough or self.error is not None, "an answer to `status`")

    def _run(self) -> None:
        try:
            with PSClient(self._addresses, timeout=10.0) as client:
                while not self._stop.is_set():
                    now = client.status()
                    self.steps.append(now.global_step)
                    self.most_workers = max(self.most_workers, len(now.workers))
        except BaseException as error:
            self.error = error


@pytest.mark.parametrize(("spec", "pushes"), [(SIZES["on-the-loop"], 20), (SIZES["in-the-thread"], 3)], ids=SIZES)
def test_b45_status_answers_while_fifty_clients_train(spec: ParameterSpec, pushes: int) -> None:
    """Fault B45: a shard whose kernels have two threads serves fifty streams, and `status` throughout."""
    # All hold a number at once, and are counted, before any pushes.
    everybody = threading.Barrier(CLIENTS, lambda: poller.await_next())

    def work(number: int) -> Outcome:
        waited = False

        def gradient(worker: int, batch: int, values: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
            nonlocal waited
            if not waited:
                everybody.wait(60)
                waited = True
            if number == 0:
                # One is slow enough for an answer between any two of its pushes.
                poller.await_next()
            return constant(1.0)(worker, batch, values)

        return run_worker(cluster.addresses, [spec], gradient, pushes=pushes, timeout=60.0)

    with LocalCluster(1, presets=EXACT, threads=2) as cluster:
        with Poller(cluster.addresses) as poller:
            done = run_workers(CLIENTS, work)
        assert poller.error is None
        step, values = final_values(cluster.addresses)
    assert [dict(outcome.outcomes) for outcome in done] == [{"APPLIED": pushes}] * CLIENTS
    assert step == CLIENTS * pushes
    assert np.unique(values["w"]).tolist() == [-step / 1024]
    assert poller.steps == sorted(poller.steps)
    assert poller.most_workers == CLIENTS
    assert len(set(poller.steps)) >= pushes


def test_b45_more_workers_than_threads_in_rounds() -> None:
    """Fault B45: sync, all wait for the last one of each round."""
    workers, steps = 16, 10
    presets = {**EXACT, "mode": "sync", "workers": workers, "steps": steps}
    with LocalCluster(1, presets=presets, threads=2) as cluster:
        with Poller(cluster.addresses) as poller:
            done = run_workers(workers, lambda _: run_worker(cluster.addresses, [scalar()], constant(1.0)))
        assert poller.error is None
        assert cluster.wait_ended() == [None]
    assert [dict(outcome.outcomes) for outcome in done] == [{"APPLIED": steps}] * workers
    assert {float(outcome.parameters["w"]) for outcome in done} == {-steps / 1024}
