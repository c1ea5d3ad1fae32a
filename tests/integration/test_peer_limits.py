"""Callers that ask for too much: refused, and nobody else is."""

from __future__ import annotations

from queue import SimpleQueue

import grpc
import pytest
from history import wait_for
from light_worker import constant, run_worker, scalar
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import (
    REASON_KEY,
    Full,
)
from grpc_ps.psserver import server, worker_service
from grpc_ps.psserver.peer_limits import Allowances, Unattached

PRESETS = {"learning_rate": 2.0**-10}
DEADLINE = 30.0


def test_a_connection_that_calls_without_end_is_refused_and_others_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "Allowances", lambda: Allowances(per_second=0.001, at_once=5))
    cluster = LocalCluster(1, presets=PRESETS)
    with cluster, PSClient(cluster.addresses) as wild, PSClient(cluster.addresses) as calm:
        for _ in range(5):
            wild.status()
        with pytest.raises(Full, match="too many calls on this connection"):
            wild.status()
        assert calm.status().phase == "empty"


def test_streams_that_never_attach_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    unattached = Unattached(limit=3)
    monkeypatch.setattr(worker_service, "Unattached", lambda: unattached)
    with LocalCluster(1, presets=PRESETS) as cluster, grpc.insecure_channel(cluster.addresses) as channel:
        stream = channel.stream_stream("/grpc_ps.v1.ParameterServer/PushPull", None, None)
        silence: SimpleQueue[bytes] = SimpleQueue()
        silent = [stream(iter(silence.get, b"")) for _ in range(3)]
        wait_for(lambda: unattached.count == 3, "three silent streams")
        with pytest.raises(grpc.RpcError) as caught:
            next(stream(iter([]), timeout=DEADLINE))
        assert caught.value.code() is grpc.StatusCode.RESOURCE_EXHAUSTED
        assert dict(caught.value.trailing_metadata())[REASON_KEY] == "FULL"
        for one in silent:
            one.cancel()
            silence.put(b"")
        wait_for(lambda: unattached.count == 0, "their end")
        done = run_worker(cluster.addresses, [scalar()], constant(1.0), pushes=3)
        assert (done.outcomes["APPLIED"], unattached.count) == (3, 0)
