"""A lead that stands still for a while takes nobody's lease away."""

from __future__ import annotations

import time

import numpy as np
from light_worker import scalar
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.psserver.lead.limits import Limits

# Long enough for a heartbeat that a busy machine holds up.
LEASE = 5.0


async def stand_still() -> None:
    """Keeps the event loop from everything else for more than a lease."""
    until = time.monotonic() + 1.2 * LEASE
    while time.monotonic() < until:
        pass


def test_b60_a_lead_that_stood_still_keeps_its_workers() -> None:
    """Fault B60: the heartbeats that waited are read, and training goes on with the same incarnation."""
    with LocalCluster(1, limits=Limits(lease=LEASE)) as cluster, PSClient(cluster.addresses, timeout=20.0) as client:
        session = client.join("test", [scalar()])
        session.open({"w": np.zeros((), np.float32)})
        session.begin()
        cluster.call(stand_still())
        reply = client.push({"w": np.ones((), np.float32)})
        assert reply.outcome == "APPLIED"
        assert [worker.incarnation for worker in client.status().workers] == [session.incarnation]
