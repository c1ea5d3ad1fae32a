"""Ghosts: of an old run, of an old life, of an index that another one holds. Refused by name, and without effect."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from commands import Command
from history import History
from light_process import light_process
from light_worker import abandon, constant, final_values, run_worker, scalar
from local_cluster import LocalCluster
from ports import free_port

from grpc_ps.client import PSClient, TrainingSession
from grpc_ps.client.shared.errors import Fenced, LostState, PsError, WrongRun
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Admit, Dismiss

PRESETS = {"learning_rate": 2.0**-10}
# Nobody who is only slow loses it.
LONG = Limits(lease=60.0)
PARAMETERS = [scalar("w"), scalar("v")]
ONES = {"w": np.ones((), np.float32), "v": np.ones((), np.float32)}
TEN = {"w": -10 / 1024, "v": -10 / 1024}


def begun(client: PSClient, **join: object) -> TrainingSession:
    """A session that holds a batch."""
    session = client.join("test", PARAMETERS, **join)  # type: ignore[arg-type]  # passed through
    if session.opener:
        session.open({name: np.zeros_like(one) for name, one in ONES.items()})
    session.begin()
    return session


def ten_pushes(addresses: str) -> None:
    """What a run is that nobody disturbs."""
    done = run_worker(addresses, PARAMETERS, constant(1.0), pushes=10)
    assert {name: float(value) for name, value in done.parameters.items()} == TEN


def test_b48_a_worker_of_an_old_run_is_refused() -> None:
    """A worker that outlived its job pushes to the next one on the same port; that one has what it would have had."""
    port = free_port()
    with PSClient(f"127.0.0.1:{port}", timeout=20.0) as client:
        with LocalCluster(1, presets=PRESETS, port=port):
            session = begun(client)
        with LocalCluster(1, presets=PRESETS, port=port) as cluster:
            with pytest.raises((WrongRun, LostState)) as refused:
                client.push(ONES)
            assert refused.value.exit_code == 4
            # By hand, as a client that does not look at boot ids: every call names its run.
            heartbeat = wire.HeartbeatRequest(id=session._membership.identity)
            with pytest.raises(WrongRun, match="that job is gone and another one runs here"):
                client._shards[0].heartbeat(heartbeat, 5.0)
            with pytest.raises(WrongRun, match="that job is gone"):
                client.join("test", PARAMETERS, run=session.run)
            ten_pushes(cluster.addresses)
            cluster.history.check()
            assert len(cluster.history.of(Admit)) == 1


def test_b11_a_second_holder_of_an_index_is_refused() -> None:
    """Fault B11: while the first lives, with its name; the job does not notice."""
    with LocalCluster(2, presets=PRESETS) as cluster, PSClient(cluster.addresses, timeout=20.0) as client:
        begun(client, index=1)
        with (
            PSClient(cluster.addresses, timeout=20.0) as second,
            pytest.raises(Fenced, match=r"index 1 is held by \S+:\d+") as refused,
        ):
            second.join("test", PARAMETERS, index=1)
        assert refused.value.exit_code == 4
        for _ in range(10):
            reply = client.push(ONES)
            assert (reply.outcome, reply.staleness) == ("APPLIED", 0)
        step, values = final_values(cluster.addresses)
    assert (step, {name: float(value) for name, value in values.items()}) == (10, TEN)


def test_b11_an_index_is_free_after_its_holders_lease_and_the_old_life_is_refused() -> None:
    """Fault B11: the third gets a new incarnation; whatever the old one still sends is refused, on every shard."""
    with LocalCluster(2, presets=PRESETS, limits=LONG) as cluster:
        with PSClient(cluster.addresses, timeout=20.0) as old, PSClient(cluster.addresses, timeout=20.0) as new:
            first = begun(old, index=1)
            assert old.push(ONES).outcome == "APPLIED"
            abandon(first)
            cluster.end_lease(1)
            second = begun(new, index=1)
            assert second.incarnation == first.incarnation + 1
            check_refused(old, first)
            for _ in range(9):
                assert new.push(ONES).outcome == "APPLIED"
            step, values = final_values(cluster.addresses)
        check_log(cluster.history, first)
    assert (step, {name: float(value) for name, value in values.items()}) == (10, TEN)


def check_refused(client: PSClient, ghost: TrainingSession) -> None:
    """Every call that names the old life: heartbeat, leave (does nothing), report, and a stream to each shard."""
    identity = ghost._membership.identity
    lead = client._shards[0]
    with pytest.raises(Fenced, match="worker 1 is no member any more"):
        lead.heartbeat(wire.HeartbeatRequest(id=identity), 5.0)
    with pytest.raises(Fenced):
        lead.report(wire.ReportRequest(id=identity, global_step=1))
    lead.leave(wire.LeaveRequest(id=identity), 5.0)
    for shard in client._shards:
        stream = shard.open_stream(lambda: None)
        stream.attach(identity, None)
        with pytest.raises(Fenced, match=r"worker 1 (has joined again since|is no member any more)"):
            stream.attached(10.0)
        stream.close()


def check_log(history: History, ghost: TrainingSession) -> None:
    history.wait_equal()
    history.check()
    (dismissed, *_) = history.of(Dismiss)
    assert (dismissed.incarnation, dismissed.reason) == (ghost.incarnation, "FENCED")
    assert [used.push.incarnation for update in history.updates[0] for used in update.pushes] == [1] + [2] * 9


def test_b11_the_holder_is_killed_and_its_heir_goes_on(tmp_path: Path) -> None:
    """Fault B11, with processes: sync, two workers; kill -9 of one, another one in its place, the same weights."""
    presets = {**PRESETS, "mode": "sync", "workers": 2, "steps": 20}
    go_on = tmp_path / "go-on"
    with LocalCluster(1, presets=presets, limits=LONG) as cluster:
        work = {"addresses": cluster.addresses, "names": ["w", "v"], "hold": [10, str(go_on)]}
        with Command(*light_process(**work, index=0)) as other, Command(*light_process(**work, index=1)) as holder:
            holder.until(r"^step 1\d$")
            with Command(*light_process(**work, index=1)) as third:
                assert third.wait() == 4
            assert "index 1 is held by" in third.lines[-1]
            holder.process.kill()
            holder.wait()
            cluster.end_lease(1)
            go_on.touch()
            with Command(*light_process(**work, index=1)) as heir:
                assert [other.wait(), heir.wait()] == [0, 0], other.text + heir.text
        assert cluster.wait_ended() == [None]
    cluster.history.check_rounds(lambda update: 2)
    assert [member.worker for member in cluster.history.of(Admit)].count(1) == 2
    assert other.summary()["values"] == {"w": -20 / 1024, "v": -20 / 1024}


def test_a_refusal_says_what_to_do() -> None:
    """The texts that people see name the thing."""
    one = {**PRESETS, "max_workers": 1}
    with LocalCluster(1, presets=one) as cluster, PSClient(cluster.addresses, timeout=20.0) as client:
        begun(client)
        for join, text in (({}, "all 1 places"), ({"index": 5}, "index 5: the job has the places 0 to 0")):
            with PSClient(cluster.addresses, timeout=20.0) as second, pytest.raises(PsError, match=text):
                second.join("test", PARAMETERS, **join)  # type: ignore[arg-type]
