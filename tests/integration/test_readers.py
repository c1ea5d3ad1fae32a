"""Readers: as many snapshots as they may hold, on every shard, and room again as soon as all of one was read."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import grpc
import numpy as np
import pytest
from history import wait_for
from light_worker import constant, run_worker, scalar
from local_cluster import LocalCluster
from ports import held_port

from grpc_ps.client import PSClient, reading
from grpc_ps.client.shard_client import ShardClient
from grpc_ps.client.shared.errors import REASON_KEY, Mismatch, PeerUnreachable, UsageError
from grpc_ps.protos.parameter_server_pb2 import PullRequest, PullResponse
from grpc_ps.protos.parameter_server_pb2_grpc import ParameterServerStub
from grpc_ps.psserver import server
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.pins import MAX_PINS
from grpc_ps.psserver.updates import load_store

DEADLINE = 20.0
# No time ends while a test runs.
PATIENT = Limits(pin=600.0)


class Shards:
    """Two shards with an open job, to be read by hand."""

    def __init__(self, cluster: LocalCluster, channels: list[grpc.Channel]) -> None:
        self.cluster = cluster
        self.stubs = [ParameterServerStub(channel) for channel in channels]

    def pull(self, shard: int, name: int = 0) -> list[PullResponse]:
        return list(self.stubs[shard].Pull(PullRequest(snapshot=name), timeout=DEADLINE))

    def held(self) -> tuple[int, int, int]:
        """Snapshots that the lead counts, and that each shard holds."""
        lead, follower = self.cluster.servers
        assert lead._coordinator is not None
        return len(lead._coordinator.job.pins), len(lead._replay.pins), len(follower._replay.pins)


@pytest.fixture
def shards() -> Iterator[Shards]:
    with LocalCluster(2, limits=PATIENT) as cluster:
        run_worker(cluster.addresses, [scalar("w"), scalar("v")], constant(1.0), pushes=1)
        channels = [grpc.insecure_channel(server.address) for server in cluster.servers]
        yield Shards(cluster, channels)
        for channel in channels:
            channel.close()


def test_those_who_read_the_lead_alone_are_bounded_on_every_shard(shards: Shards) -> None:
    names = [shards.pull(0)[0].meta.snapshot for _ in range(MAX_PINS)]
    with pytest.raises(grpc.RpcError) as refused:
        shards.pull(0)
    assert (REASON_KEY, "FULL") in refused.value.trailing_metadata()
    wait_for(lambda: shards.held() == (MAX_PINS, 0, MAX_PINS), "the follower's pins")
    # Where the rest of one is read there is room for one.
    shards.pull(1, names[3])
    wait_for(lambda: shards.held() == (MAX_PINS - 1, 0, MAX_PINS - 1), "room for a reader")
    shards.pull(0)


def test_a_reader_that_goes_away_makes_room(shards: Shards) -> None:
    name = shards.pull(0)[0].meta.snapshot
    calls = [shards.stubs[1].Pull(PullRequest(snapshot=name), timeout=DEADLINE)]
    next(calls[0])
    calls[0].cancel()
    wait_for(lambda: shards.held() == (0, 0, 0), "the end of the reading")


def test_who_reads_all_shards_is_never_refused(shards: Shards) -> None:
    with PSClient(shards.cluster.addresses, timeout=DEADLINE) as client:
        steps = {client.pull().global_step for _ in range(5 * MAX_PINS)}
    assert steps == {1}
    wait_for(lambda: shards.held() == (0, 0, 0), "all to be let go of")


def test_a_list_of_more_or_fewer_shards_is_refused_before_anything_is_pinned(shards: Shards) -> None:
    lead, follower = (server.address for server in shards.cluster.servers)
    for listed in ([lead], [lead, follower, "127.0.0.1:1"]):
        with PSClient(listed, timeout=DEADLINE) as client, pytest.raises(Mismatch) as refused:
            client.pull()
        assert str(refused.value) == f"--ps lists {len(listed)} shards, the job has 2"
    assert shards.held() == (0, 0, 0)


@pytest.mark.parametrize("asked", [{"names": ["nobody"]}, {"rows": {"nobody": [0]}}], ids=["values", "rows"])
def test_readings_that_fail_leave_nothing_pinned(shards: Shards, asked: dict[str, Any]) -> None:
    with PSClient(shards.cluster.addresses, timeout=DEADLINE) as client:
        for _ in range(2 * MAX_PINS):
            with pytest.raises(UsageError, match="nobody"):
                client.pull(**asked)
    wait_for(lambda: shards.held() == (0, 0, 0), "all to be let go of")


def test_a_reading_that_fails_does_not_wait_for_a_shard_that_stands_still(
    shards: Shards, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other shard is silent: the reading that fails ends at once, and the call there some time later."""
    said = threading.Event()

    def silent(self: ShardClient, snapshot: int, *arguments: Any, **more: Any) -> Iterator[Any]:
        messages = pull(self, snapshot, *arguments, **more)
        if self.address == follower:
            assert said.wait(DEADLINE)
        yield from messages

    pull, follower = ShardClient.pull, shards.cluster.servers[1].address
    monkeypatch.setattr(ShardClient, "pull", silent)
    with PSClient(shards.cluster.addresses, timeout=DEADLINE) as client:
        with pytest.raises(UsageError, match="nobody"):
            client.pull(["nobody"])
        said.set()
        wait_for(lambda: shards.held() == (0, 0, 0), "all to be let go of")


def test_a_shard_out_of_reach_is_named_and_takes_one_place_of_readers(shards: Shards) -> None:
    with held_port() as port:
        nobody = f"127.0.0.1:{port}"
        listed = [shards.cluster.servers[0].address, nobody]
        says = f"^{nobody}: nothing answers there"
        with PSClient(listed, timeout=2.0) as client, pytest.raises(PeerUnreachable, match=says):
            client.pull()
    assert shards.held()[0] == 1


def test_a_reader_waits_for_a_shard_that_still_gets_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    """TensorFlow is imported still when the values have come: for longer than a shard lets one question wait."""
    ready = threading.Event()

    def load_slowly(threads: int) -> Any:
        assert ready.wait(DEADLINE)
        return load_store(threads)

    monkeypatch.setattr(server, "load_store", load_slowly)
    with (
        LocalCluster(1, limits=Limits(call=0.2)) as cluster,
        PSClient(cluster.addresses, timeout=DEADLINE) as worker,
        PSClient(cluster.addresses, timeout=DEADLINE) as reader,
        ThreadPoolExecutor(1) as pool,
    ):
        worker.join("test", [scalar()]).open({"w": np.ones((), np.float32)})
        wait_for(lambda: reader.status().phase == "running", "the values")
        asked: list[object] = []
        pin = reading._pin
        monkeypatch.setattr(reading, "_pin", lambda *arguments: asked.append(arguments) or pin(*arguments))
        values = pool.submit(reader.pull)
        wait_for(lambda: values.done() or len(asked) > 2, "further questions")
        assert len(cluster.servers[0]._coordinator.job.pins) == 0  # type: ignore[union-attr]  # shard 0 has one
        ready.set()
        assert float(values.result(DEADLINE).values["w"]) == 1.0
