"""Start-up: in any order, once, and from one set of values."""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Mapping
from itertools import permutations
from typing import Any

import numpy as np
import pytest
from history import wait_for
from light_worker import Outcome, constant, run_worker, run_workers, scalar
from local_cluster import LocalCluster
from ports import free_port
from real_worker import train

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import NotOpen
from grpc_ps.models.linear import Linear
from grpc_ps.psserver.config import ShardConfig
from grpc_ps.psserver.lead.log import Open
from grpc_ps.psserver.server import ShardServer

PRESETS = {"learning_rate": 2.0**-10, "steps": 20}


class Staged(LocalCluster):
    """Two shards with ports of their own, started one by one in any order."""

    def __enter__(self) -> Staged:
        self._thread.start()
        self.ports = [free_port(), free_port()]
        self.started: dict[int, ShardServer] = {}
        return self

    @property
    def addresses(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self.ports)

    def start(self, shard: int) -> None:
        self.call(self._start(shard))

    async def _start(self, shard: int) -> None:
        lead = f"127.0.0.1:{self.ports[0]}" if shard else ""
        config = ShardConfig(shard=shard, shards=2, lead=lead, port=self.ports[shard], presets={} if shard else PRESETS)
        server = ShardServer(config)
        await server.start()
        self.ended.append(asyncio.ensure_future(server.run()))


@pytest.mark.parametrize("order", list(permutations(["shard 0", "shard 1", "worker"])))
def test_b01_processes_start_in_any_order(order: tuple[str, ...]) -> None:
    """Fault B01: two shards and a worker, each of which finds the others whenever they come."""
    done: list[Outcome] = []
    with Staged(2) as cluster:
        worker = threading.Thread(
            target=lambda: done.append(run_worker(cluster.addresses, [scalar("w"), scalar("v")], constant(1.0)))
        )
        for one in order:
            if one == "worker":
                worker.start()
            else:
                cluster.start(int(one[-1]))
        worker.join(30)
        assert cluster.wait_ended() == [None, None]
    assert [(outcome.global_step, dict(outcome.outcomes)) for outcome in done] == [(20, {"APPLIED": 20})]


def test_b03_workers_at_once_initialise_once_and_start_equal() -> None:
    """Fault B03: fifty times four workers at the same instant, whose first values differ.

    They come when so many of the others wait already, by chance: none, some or all.
    """
    chance = random.Random(3)
    spec = ParameterSpec(name="w", shape=(2000,), dtype="float32")

    def repeat() -> None:
        others = chance.randrange(4)
        starts: list[bytes] = []

        def work(number: int) -> Outcome:
            with PSClient(cluster.addresses, timeout=20.0) as client:
                session = client.join("test", [spec])
                if session.opener:
                    with pytest.raises(NotOpen), PSClient(cluster.addresses, timeout=20.0) as reader:
                        reader.pull()
                    lead = cluster.servers[0]._coordinator
                    wait_for(lambda: lead is not None and lead.reception._waiting >= others, f"{others} others")
                    session.open({"w": np.random.default_rng(number).normal(size=2000).astype(np.float32)})
                session.begin()
                starts.append(session.parameters["w"].tobytes())
                everybody.wait(20)
                return Outcome()

        everybody = threading.Barrier(4)
        with LocalCluster(2, presets=PRESETS) as cluster:
            run_workers(4, work)
        assert len(starts) == 4
        assert len(set(starts)) == 1
        assert [len(cluster.history.of(Open, shard)) for shard in (0, 1)] == [1, 1]

    for _ in range(50):
        repeat()


def test_b13_more_shards_than_parameters() -> None:
    """Fault B13: linear's two parameters on five shards, sync with two workers: all take part, and all end."""
    one, other = train([Linear, Linear], shards=5, mode="sync", steps=20)
    assert one.read.global_step == other.read.global_step == 20
    assert one.read.values["w"].tobytes() == other.read.values["w"].tobytes()


def test_b13_empty_shards_report_no_bytes() -> None:
    """Fault B13: they are there, connected, and hold nothing."""
    with LocalCluster(5, presets=PRESETS) as cluster, PSClient(cluster.addresses, timeout=20.0) as client:
        run_worker(cluster.addresses, [scalar("w"), scalar("b")], constant(1.0), pushes=3)
        shards = client.status().shards
    assert sorted((shard.blocks, shard.value_bytes) for shard in shards) == [(0, 0)] * 3 + [(1, 4)] * 2
    assert all(shard.connected for shard in shards)


@pytest.mark.parametrize("nbytes", [4194303, 4194304, 4194305, 4194304 - 64])
def test_b21_sizes_around_four_mebibytes_to_the_byte(nbytes: int) -> None:
    """Fault B21: gRPC's default limit, with default flags on both ends; truth values have one byte each."""
    flags = ParameterSpec(name="flags", shape=(nbytes,), dtype="bool", trainable=False)
    first = np.random.default_rng(1).integers(0, 2, nbytes).astype(bool)

    def gradient(worker: int, batch: int, values: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        assert values["flags"].tobytes() == first.tobytes()
        return {"w": np.ones((), np.float32)}, 1

    initial = {"flags": first, "w": np.zeros((), np.float32)}
    with LocalCluster(1, presets=PRESETS) as cluster:
        run_worker(cluster.addresses, [flags, scalar()], gradient, initial=initial, pushes=1)
        with PSClient(cluster.addresses, timeout=20.0) as client:
            pulled = client.pull()
    assert pulled.values["flags"].tobytes() == first.tobytes()
    assert float(pulled.values["w"]) == -1 / 1024
