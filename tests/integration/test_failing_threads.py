"""An error in any thread or task ends its process: nobody goes on with half of what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from light_worker import constant, run_worker, scalar
from local_cluster import LocalCluster
from real_worker import train_in

from grpc_ps.client import PSClient, TrainingSession
from grpc_ps.client.shared.errors import JobFailed, PsError
from grpc_ps.models.linear import Linear
from grpc_ps.psserver import server
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.link import Link

BOTH = [scalar("w"), scalar("v")]


def boom(*arguments: Any) -> Any:
    raise RuntimeError("boom")


def test_an_error_in_the_heartbeats_thread_ends_the_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """In the middle of training that would never end, in a real worker: the error comes out where it waits."""
    monkeypatch.setattr(TrainingSession, "beat", boom)
    with LocalCluster(1, presets={"steps": 10**9}) as cluster:
        (trained,) = train_in(cluster, [Linear])
    assert isinstance(trained.error, RuntimeError)
    assert str(trained.error) == "boom"


def test_an_error_in_the_heartbeats_thread_ends_a_worker_that_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TrainingSession, "beat", boom)
    presets = {"mode": "sync", "workers": 2}
    with LocalCluster(1, presets=presets) as cluster, pytest.raises(RuntimeError, match=r"^boom$"):
        run_worker(cluster.addresses, BOTH, constant(1.0))


def test_an_error_in_the_thread_that_imports_tensorflow_ends_the_shard(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_tensorflow(threads: int) -> Any:
        raise ImportError("no such library")

    monkeypatch.setattr(server, "load_store", no_tensorflow)
    with LocalCluster(1) as cluster:
        (failed,) = cluster.wait_ended()
        address = cluster.servers[0].address
    assert isinstance(failed, JobFailed)
    assert str(failed) == f"shard 0 ({address}) failed: ImportError: no such library"


def test_an_error_in_the_task_that_sends_reports_ends_the_follower_and_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    """The lead would wait for its reports for ever: the link itself is well."""

    async def send_some(link: Link, call: Any) -> None:
        for _ in range(4):
            await call.write(await link._reports.get())
        boom()

    monkeypatch.setattr(Link, "_send_reports", send_some)
    with LocalCluster(2, presets={"steps": 10}, limits=Limits(link=1.0), grace_seconds=0.5) as cluster:
        told = end_of_training(cluster.addresses)
        lead, failed = cluster.wait_ended()
    assert isinstance(failed, RuntimeError)
    assert isinstance(lead, JobFailed)
    assert (lead.exit_code, told) == (4, 4)


def end_of_training(addresses: str) -> int:
    """The exit code that a worker is told which pushes until it is over."""
    with PSClient(addresses, timeout=20.0) as client:
        session = client.join("test", BOTH)
        session.open({spec.name: np.zeros((), np.float32) for spec in BOTH})
        try:
            reply = session.begin()
            while not reply.done:
                reply = client.push({spec.name: np.ones((), np.float32) for spec in BOTH})
        except PsError as error:
            return error.exit_code
        return reply.exit_code
