"""Asynchronous updates: every push once, every pull of one step, a hard limit of steps."""

from __future__ import annotations

import threading
from itertools import count

import numpy as np
import pytest
from history import wait_for
from light_worker import constant, final_values, gathered, run_worker, run_workers, scalar
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec

EXACT = {"optimizer": "sgd", "learning_rate": 2.0**-10}
READERS = 3


@pytest.mark.parametrize("repetition", range(20))
def test_b37_no_update_is_lost_under_concurrency(repetition: int) -> None:
    """Fault B37: 8 clients x 200 pushes of gradient 1 on 2 shards are -1.5625 exactly, in every repetition."""
    parameters = [scalar("w"), scalar("v")]
    with LocalCluster(2, presets=EXACT) as cluster:
        done = run_workers(8, lambda _: run_worker(cluster.addresses, parameters, constant(1.0), pushes=200))
        step, values = final_values(cluster.addresses)
    assert [dict(outcome.outcomes) for outcome in done] == [{"APPLIED": 200}] * 8
    assert step == 1600
    assert {name: float(value) for name, value in values.items()} == {"w": -1.5625, "v": -1.5625}


@pytest.mark.parametrize(
    ("chunk_bytes", "shapes"),
    [(1 << 20, [(300_000,), (500, 400)]), (1024, [(3000,), (50, 40), (7,)])],
    ids=["1-MiB-chunks", "1-KiB-chunks"],
)
def test_concurrent_readers_see_one_step_in_every_tensor_of_every_pull(
    chunk_bytes: int, shapes: list[tuple[int, ...]]
) -> None:
    """The tensors' blocks lie on two shards, in several chunks: a torn read would show two values."""
    parameters = [
        ParameterSpec(name=name, shape=shape, dtype="float32") for name, shape in zip("abc", shapes, strict=False)
    ]
    stop = threading.Event()
    seen: list[tuple[int, set[float]]] = []
    pushed = count()

    def read() -> None:
        with PSClient(cluster.addresses, timeout=20.0) as client:
            while not stop.is_set():
                pulled = client.pull()
                ends = {float(end) for array in pulled.values.values() for end in (array.min(), array.max())}
                seen.append((pulled.global_step, ends))

    def awaiting_readers(worker: int, batch: int, values: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        if worker == 0 and next(pushed) % 5 == 0:
            # Of so many the last ones begin behind this worker's last push: each time shows another step.
            enough = len(seen) + 2 * READERS
            wait_for(lambda: len(seen) >= enough, f"{enough} pulls")
        return constant(1.0)(worker, batch, values)  # type: ignore[return-value]

    with LocalCluster(2, presets=EXACT, chunk_bytes=chunk_bytes) as cluster:
        run_worker(cluster.addresses, parameters, constant(1.0), pushes=0)
        readers = [threading.Thread(target=read, daemon=True) for _ in range(READERS)]
        for reader in readers:
            reader.start()
        run_workers(3, lambda _: run_worker(cluster.addresses, parameters, awaiting_readers, pushes=40))
        stop.set()
        for reader in readers:
            reader.join(30)
    assert len({step for step, _ in seen}) >= 40 // 5
    for step, ends in seen:
        assert ends == {-step / 1024}


@pytest.mark.parametrize(("chunk_bytes", "size"), [(1 << 20, 70_000), (1024, 1000)], ids=["1-MiB", "1-KiB"])
def test_a_worker_computes_on_one_step_of_all_shards(chunk_bytes: int, size: int) -> None:
    parameters = [ParameterSpec(name=name, shape=(size,), dtype="float32") for name in "abcd"]

    def gradient(worker: int, batch: int, values: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        assert len({float(end) for array in values.values() for end in (array.min(), array.max())}) == 1
        return {name: np.ones_like(array) for name, array in values.items()}, 1

    with LocalCluster(3, presets={**EXACT, "steps": 90}, chunk_bytes=chunk_bytes) as cluster:
        compute = gathered(cluster, 3, gradient)
        done = run_workers(3, lambda _: run_worker(cluster.addresses, parameters, compute))
    assert sum(outcome.outcomes["APPLIED"] for outcome in done) == 90


def test_b39_steps_is_a_hard_limit() -> None:
    """Fault B39: 4 workers, 101 steps: exactly 101 updates, and everybody is told the same last step."""
    with LocalCluster(2, presets={**EXACT, "steps": 101}) as cluster:
        ones = gathered(cluster, 4, constant(1.0))
        done = run_workers(4, lambda _: run_worker(cluster.addresses, [scalar()], ones))
        ended = cluster.wait_ended()
    assert sum(outcome.outcomes["APPLIED"] for outcome in done) == 101
    assert {outcome.global_step for outcome in done} == {101}
    assert {name for outcome in done for name in outcome.outcomes} <= {"APPLIED", "DONE"}
    assert ended == [None, None]


def test_a_worker_that_joins_goes_on_from_the_global_step() -> None:
    with LocalCluster(2, presets=EXACT) as cluster:
        run_worker(cluster.addresses, [scalar()], constant(1.0), pushes=30)
        late = run_worker(cluster.addresses, [scalar()], constant(1.0), pushes=5)
        step, values = final_values(cluster.addresses)
    assert late.first_step == 30
    assert (step, float(values["w"])) == (35, -35 / 1024)


def test_b03_four_workers_at_once_initialise_once_and_start_equal() -> None:
    """Fault B03: whoever opens, all start from its values."""
    spec = ParameterSpec(name="w", shape=(1000,), dtype="float32")
    starts: list[np.ndarray] = []

    def work(number: int) -> None:
        rng = np.random.default_rng(number)
        with PSClient(cluster.addresses, timeout=20.0) as client:
            session = client.join("test", [spec])
            if session.opener:
                session.open({"w": rng.normal(size=1000).astype(np.float32)})
            session.begin()
            starts.append(session.parameters["w"].copy())

    with LocalCluster(2, presets=EXACT) as cluster:
        threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(30)
        with PSClient(cluster.addresses) as client:
            assert client.status().opened == 1
    assert len(starts) == 4
    assert starts[0].any()
    for start in starts[1:]:
        assert start.tobytes() == starts[0].tobytes()


def test_b13_a_shard_without_blocks_takes_part() -> None:
    """Fault B13: five shards and two scalars."""
    with LocalCluster(5, presets={**EXACT, "steps": 20}) as cluster:
        ones = gathered(cluster, 2, constant(1.0))
        done = run_workers(2, lambda _: run_worker(cluster.addresses, [scalar("w"), scalar("b")], ones))
        ended = cluster.wait_ended()
    assert sum(outcome.outcomes["APPLIED"] for outcome in done) == 20
    assert ended == [None] * 5
