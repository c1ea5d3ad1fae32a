"""A job ends by itself: shards leave soon after the last worker, and who comes too late has nothing to do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from commands import Command
from light_process import light_process
from light_worker import Outcome, constant, gathered, run_worker, run_workers, scalar
from local_cluster import LocalCluster
from real_worker import train_in

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.models.linear import Linear
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Apply, Entry
from grpc_ps.worker.loading import load_data

PARAMETERS = [scalar("w"), scalar("v")]
LINE = [ParameterSpec(name=name, shape=(1,), dtype="float32") for name in "wb"]
# Of the workers no lease has to end before the shards do.
LONG = Limits(lease=60.0)
pytestmark = pytest.mark.usefixtures("leaving_is_heard")
MODES: dict[str, dict[str, Any]] = {"async": {"mode": "async"}, "sync": {"mode": "sync", "workers": 2}}


@pytest.mark.parametrize("mode", MODES)
def test_b55_shards_end_after_the_last_worker(mode: str) -> None:
    """Fault B55: two shards, two workers, 50 steps: every shard ends well, and needs no one to stop it."""
    with LocalCluster(2, presets={"steps": 50, **MODES[mode]}, limits=LONG) as cluster:
        ones = gathered(cluster, 2, constant(1.0))
        done = run_workers(2, lambda number: run_worker(cluster.addresses, PARAMETERS, ones, index=number))
        assert cluster.wait_ended() == [None, None]
    assert [outcome.global_step for outcome in done] == [50, 50]
    assert cluster.history.step == 50


def test_b55_shards_end_after_the_lease_of_a_worker_that_was_killed() -> None:
    """Fault B55: async; worker 1 dies at step 20, and nobody tells the shards anything of it."""
    with LocalCluster(2, presets={"steps": 50}, limits=Limits(lease=5.0)) as cluster:
        with Command(*light_process(cluster.addresses, names=["w", "v"], index=1)) as victim:

            def kill(shard: int, entry: Entry) -> None:
                if isinstance(entry, Apply) and entry.step == 20:
                    victim.process.kill()

            cluster.history.hooks.append(kill)
            assert victim.wait() == -9
            run_worker(cluster.addresses, PARAMETERS, constant(1.0), index=0)
        assert cluster.wait_ended() == [None, None]
    assert cluster.history.step == 50


def finish(client: PSClient, steps: int) -> None:
    """Trains a line to the end of its job, and stays: the shards wait until this worker leaves."""
    client.join("linear", LINE, defaults={"data": load_data(Linear(), name=None, directory=None).train.fingerprint})
    session = client.session
    assert session is not None
    session.open({spec.name: np.zeros(spec.shape, np.float32) for spec in LINE})
    reply = session.begin()
    while not reply.done:
        reply = client.push({spec.name: np.ones(spec.shape, np.float32) for spec in LINE})
    assert reply.global_step == steps


@pytest.mark.parametrize("index", [1, None])
def test_b57_a_worker_that_comes_after_the_end_has_nothing_to_do(index: int | None) -> None:
    """Fault B57: it is told so at once, ends well, and applies nothing."""
    with LocalCluster(2, presets={"steps": 50}, limits=LONG) as cluster:
        with PSClient(cluster.addresses, timeout=20.0) as client:
            finish(client, 50)
            (late,) = train_in(cluster, [Linear], index=index)
            assert late.error is None
        assert cluster.wait_ended() == [None, None]
    assert (late.summary["global_step"], late.summary["local_steps"]) == (50, 0)
    assert "target step 50 already reached: global_step 50, local_step 0" in late.lines[-1]
    assert cluster.history.step == 50


def test_b57_a_member_of_a_round_that_comes_back_after_the_end_has_nothing_to_do() -> None:
    """Fault B57: sync; worker 1 has left when the job was done, and is started again: nobody waits for a round."""
    presets = {"steps": 50, "mode": "sync", "workers": 2}
    with LocalCluster(2, presets=presets, limits=LONG) as cluster:
        with PSClient(cluster.addresses, timeout=20.0) as stays:
            stays.join("test", PARAMETERS, index=0)
            done = run_workers(2, lambda number: stay(stays) if number == 0 else one(cluster))
            assert [outcome.global_step for outcome in done] == [50, 50]
            again = one(cluster)
        assert cluster.wait_ended() == [None, None]
    assert (again.global_step, again.sent) == (50, 0)
    assert again.last is not None
    assert again.last.exit_code == 0


def one(cluster: LocalCluster) -> Outcome:
    """Worker 1 from its start to its end."""
    return run_worker(cluster.addresses, PARAMETERS, constant(1.0), index=1)


def stay(client: PSClient) -> Outcome:
    """Trains to the end with a session that stays a member."""
    session = client.session
    assert session is not None
    if session.opener:
        session.open({spec.name: np.zeros((), np.float32) for spec in PARAMETERS})
    reply = session.begin()
    while not reply.done:
        reply = client.push({spec.name: np.ones((), np.float32) for spec in PARAMETERS})
    return Outcome(global_step=reply.global_step)
