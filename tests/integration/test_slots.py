"""No lost update, in values or slots: what many workers did at once equals a serial replay (fault B37)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pytest
from light_worker import run_worker, run_workers
from local_cluster import LocalCluster

from grpc_ps.client.shared.blocks import ParameterSpec

SPECS = [ParameterSpec(name="w", shape=(300,), dtype="float32"), ParameterSpec(name="v", shape=(7,), dtype="float32")]
CLIENTS, PUSHES = 8, 50


def pushed(numbers: Sequence[int] | None) -> Any:
    """Gradients that depend on the batch number alone; with `numbers`, the n-th push has that of the n-th number."""

    def gradient(worker: int, batch: int, values: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        rng = np.random.default_rng(batch if numbers is None else numbers[batch])
        return {spec.name: rng.normal(size=spec.shape).astype(np.float32) for spec in SPECS}, 1

    return gradient


def state(cluster: LocalCluster) -> dict[tuple[str, int, str], bytes]:
    """Bytes of every variable and slot of all shards."""
    found = {}
    for server in cluster.servers:
        store: Any = server._replay._updates._store
        for held in store.state():
            for name, data in {"": held.value, **held.slots}.items():
                found[held.block.parameter, held.block.start, name] = data.tobytes()
    return found


@pytest.mark.parametrize("optimizer", ["momentum", "adam", "adagrad", "rmsprop"])
def test_b37_values_and_slots_equal_a_serial_replay(optimizer: str) -> None:
    """Fault B37: 8 workers x 50 pushes at once, then the same gradients one after the other in the order of the log."""
    presets = {"optimizer": optimizer, "learning_rate": 0.01}
    with LocalCluster(1, presets=presets) as cluster:
        done = run_workers(CLIENTS, lambda _: run_worker(cluster.addresses, SPECS, pushed(None), pushes=PUSHES))
        together = state(cluster)
    assert [dict(outcome.outcomes) for outcome in done] == [{"APPLIED": PUSHES}] * CLIENTS
    order = cluster.history.applied_batches()
    assert len(set(order)) == CLIENTS * PUSHES
    with LocalCluster(1, presets=presets) as cluster:
        run_worker(cluster.addresses, SPECS, pushed(order), pushes=CLIENTS * PUSHES)
        serial = state(cluster)
    assert together == serial
    assert len(serial) > 2, "there are no slots to compare"
