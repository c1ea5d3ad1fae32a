"""A shard that was away is found again soon after its return, also under another address."""

from __future__ import annotations

import time
from contextlib import ExitStack

import pytest
from flaky_link import FlakyLink
from light_worker import constant, final_values, run_worker, scalar
from local_cluster import LocalCluster
from names import NameServer
from ports import free_port

from grpc_ps.client.shard_client import ShardClient
from grpc_ps.client.shared.errors import PeerLost, PeerUnreachable
from grpc_ps.protos.control_pb2 import StatusRequest, StatusResponse
from grpc_ps.protos.control_pb2_grpc import ControlStub
from grpc_ps.psserver.lead.limits import Limits

# A call that waits for the shard's return gets an answer within it. The case's own bound is five seconds, and what a
# busy machine takes is added; by default gRPC would try again, or resolve a name again, after 20 to 30 s.
BACK = 15.0
# A shard whose link is down for that long is lost, and the job with it.
LIMITS = Limits(link=BACK)
BOTH = [scalar("w"), scalar("v")]


def keep_asking(shard: ShardClient, seconds: float) -> None:
    """Calls a shard that is away, over and over, as a worker does that tries to get its links back."""
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        with pytest.raises((PeerUnreachable, PeerLost)):
            shard.status(timeout=0.5)


def returned(shard: ShardClient) -> None:
    """Waits for the shard in one call, however often gRPC has to connect for it."""
    response = ControlStub(shard.channel).Status(StatusRequest(), timeout=BACK, wait_for_ready=True)
    assert isinstance(response, StatusResponse)


def check_outage(seconds: float) -> None:
    port = free_port()
    shard = ShardClient(f"127.0.0.1:{port}")
    try:
        with LocalCluster(1, port=port):
            shard.status()
        keep_asking(shard, seconds)
        with LocalCluster(1, port=port):
            returned(shard)
    finally:
        shard.close()


def test_b52_a_shard_that_was_away_is_found_again() -> None:
    """Fault B52: longer than gRPC's first back-offs, which then doubles up to two minutes by default."""
    check_outage(6.0)


@pytest.mark.slow
def test_b52_a_shard_that_was_away_for_45_seconds_is_found_again() -> None:
    """Fault B52, as it is told."""
    check_outage(45.0)


def test_b52_a_name_that_has_moved_is_resolved_again() -> None:
    """Fault B52: from 127.0.0.1 to 127.0.0.2 while the shard was away. gRPC would ask again after 30 s by default."""
    port = free_port()
    with NameServer("127.0.0.1") as names:
        shard = ShardClient(names.target(port))
        try:
            with LocalCluster(1, port=port):
                shard.status()
            names.means = "127.0.0.2"
            with LocalCluster(1, port=port, host="127.0.0.2"):
                returned(shard)
            assert names.asked >= 2
        finally:
            shard.close()


def test_b52_a_followers_link_resolves_the_leads_name_again() -> None:
    """Fault B52 between shards: the lead is reached at another address from one moment to the next, and resumed."""
    with ExitStack() as stack:
        names = stack.enter_context(NameServer("127.0.0.1"))
        first: list[FlakyLink] = []

        def through_names(address: str) -> str:
            first.append(FlakyLink(address).__enter__())
            return names.target(int(first[0].address.rpartition(":")[2]))

        presets = {"learning_rate": 2.0**-10}
        cluster = stack.enter_context(LocalCluster(2, presets=presets, limits=LIMITS, lead_seen_as=through_names))
        run_worker(cluster.addresses, BOTH, constant(1.0), pushes=5)
        names.means = "127.0.0.2"
        port = int(first[0].address.rpartition(":")[2])
        stack.enter_context(FlakyLink(cluster.servers[0].address, "127.0.0.2", port))
        first[0].__exit__(None, None, None)
        run_worker(cluster.addresses, BOTH, constant(1.0), pushes=5)
        step, values = final_values(cluster.addresses)
    assert (step, float(values["w"]), float(values["v"])) == (10, -10 / 1024, -10 / 1024)
