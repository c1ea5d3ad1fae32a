"""A cluster that stands: jobs that clients submit, carried out one after the other by light standing workers."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from commands import Command, ready
from light_worker import constant, run_worker, scalar
from local_cluster import LocalCluster
from mortal_cluster import Mortal
from shard_process import shard_process
from standing_workers import LightStanding, by_name, until, until_ended

from grpc_ps.client import PSClient
from grpc_ps.client.jobs import Carried, JobRequest
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import Mismatch, UsageError, WrongRun
from grpc_ps.protos import control_pb2 as wire
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Open

FOREVER = 10**12
# Nobody who is only slow loses it.
LEASE = Limits(lease=60.0)


def job(name: str, **stated: Any) -> JobRequest:
    """SGD with rate 1 and gradients of -1: after n steps every element is n."""
    return JobRequest(model="linear", name=name, stated={"learning_rate": 1.0, "steps": 5, **stated})


@contextlib.contextmanager
def standing(shards: int = 1, workers: int = 2, **config: Any) -> Iterator[tuple[LocalCluster, PSClient]]:
    with contextlib.ExitStack() as stack:
        cluster = stack.enter_context(LocalCluster(shards, keep_alive=True, **config))
        client = stack.enter_context(PSClient(cluster.addresses))
        for _ in range(workers):
            stack.enter_context(LightStanding(cluster.addresses))
        yield cluster, client


@pytest.mark.parametrize("shards", [1, 2])
def test_jobs_are_carried_out_one_after_the_other_on_a_cleared_store(shards: int) -> None:
    """Three jobs with other parameters and settings; the one in the middle fails. Nothing of one is in the next."""
    with standing(shards) as (cluster, client):
        numbers = [
            client.jobs.submit(it) for it in (job("one", steps=7), job(""), job("two", steps=4, mode="sync", workers=2))
        ]
        assert numbers == [1, 2, 3]
        first, failed, last = (until_ended(client, number) for number in numbers)
        assert (first.state, first.global_step, first.exit_code) == ("done", 7, 0)
        assert (failed.state, failed.exit_code, failed.global_step) == ("failed", 3, 0)
        assert "/data: there is no such folder" in failed.reason
        assert (last.state, last.global_step) == ("done", 4)
        assert len({first.run, failed.run, last.run}) == 3
        pulled = client.pull()
        assert pulled.global_step == 4
        assert pulled.values.keys() == {"two"}
        np.testing.assert_array_equal(pulled.values["two"], [4, 4, 4])
        now = client.status()
        assert (now.phase, now.job_number, now.model, now.run) == ("stopped", 3, "test", last.run)
        assert now.settings["mode"] == "sync"
        assert len(cluster.history.of(Open, shards - 1)) == 2
        assert not any(future.done() for future in cluster.ended)
        assert client.stop() == 4
        assert cluster.wait_ended() == [None] * shards


def test_the_queue_its_order_and_cancelling() -> None:
    with standing() as (cluster, client):
        running, waiting, cancelled = (client.jobs.submit(job(name, steps=FOREVER)) for name in "abc")
        now = until(client, running, lambda it: it.workers == 2 and it.state == "running" and it.global_step > 0)
        listed = client.jobs.list()
        assert [it.state for it in listed] == ["running", "queued", "queued"]
        assert [it.waiting_for for it in listed] == ["", "job 1 to end", "job 1 and 1 more to end"]
        assert [it.carrying for it in client.jobs.standing()] == [running, running]
        one = client._shards[0].list_jobs(wire.ListJobsRequest(number=running))
        assert ([it.number for it in one.jobs], list(one.standing)) == ([running], [])
        assert (now.started_ms or 0) >= now.submitted_ms > 0
        assert now.batches > 0
        assert now.examples == now.batches
        assert client.jobs.cancel(cancelled).state == "cancelled"
        client.jobs.cancel(running)
        ended = until_ended(client, running)
        assert (ended.state, ended.exit_code) == ("cancelled", 7)
        assert ended.reason == f"cancelled at global step {ended.global_step}"
        until(client, waiting, lambda it: it.state == "running")
        assert client.status().job_number == waiting
        with PSClient(cluster.addresses) as other:
            gone = Carried(number=running, run=now.run, exit_code=4, reason="that job is gone")
            other.jobs.wait(0.0, ended=gone)
            assert {it.failure for it in client.jobs.standing()} == {""}, "it only ended with its job"
            run = client.jobs.get(waiting).run
            other.jobs.wait(0.0, ended=Carried(number=waiting, run=run, exit_code=3, reason="no data"))
            assert [(it.failure, it.failed) for it in client.jobs.standing() if it.failure] == [("no data", waiting)]
            other.jobs.leave(5.0)
        client.jobs.cancel(waiting)
        until_ended(client, waiting)
        with pytest.raises(UsageError, match="there is no job 9"):
            client.jobs.cancel(9)
        assert [it.state for it in client.jobs.list()] == ["cancelled"] * 3


def test_a_job_that_has_failed_is_not_the_clusters_end() -> None:
    with standing(workers=1) as (cluster, client):
        assert until_ended(client, client.jobs.submit(job(""))).exit_code == 3
        client.stop()
        assert cluster.wait_ended() == [None]


def test_a_job_waits_for_a_standing_worker_and_newcomers_join_it() -> None:
    with standing(workers=0) as (cluster, client):
        now = client.status()
        assert (now.waiting_for, now.takes_jobs) == ("a job (psctl submit), or a worker that brings one", True)
        number = client.jobs.submit(job("a", steps=FOREVER))
        assert client.status().waiting_for == "a standing worker for job 1"
        assert client.jobs.get(number).waiting_for == "a standing worker"
        behind = client.jobs.submit(job("behind"))
        assert client.jobs.get(behind).waiting_for == "a standing worker, and job 1 to end"
        client.jobs.cancel(behind)
        assert client.jobs.get(behind).waiting_for == ""
        with LightStanding(cluster.addresses) as one:
            until(client, number, lambda it: it.workers == 1)
            with LightStanding(cluster.addresses) as two:
                until(client, number, lambda it: it.workers == 2)
                client.jobs.cancel(number)
                until_ended(client, number)
                limited = client.jobs.submit(JobRequest(model="linear", name="b", members=1, stated={"steps": 3}))
                until_ended(client, limited)
        assert sorted([*one.carried, *two.carried]) == [1, 1, 3]


def test_a_standing_worker_that_vanishes_leaves_the_job_to_the_others() -> None:
    """Killed in the middle of a job: the lease ends, the job goes on, and the next one runs with who is left."""
    with standing(workers=1, limits=LEASE) as (cluster, client):
        with PSClient(cluster.addresses) as other:
            number = client.jobs.submit(job("a", steps=FOREVER))
            until(client, number, lambda it: it.workers == 1)
            told = other.jobs.wait(5.0)
            assert (told.number, told.run) == (number, client.jobs.get(number).run)
            session = other.join("test", [ParameterSpec(name="a", shape=(3,), dtype="float32")], run=told.run)
            assert len(client.jobs.standing()) == 2
            session._on_leave = lambda: None
        vanished(cluster, other)
        step = until(client, number, lambda it: it.workers == 1).global_step
        until(client, number, lambda it: it.global_step > step)
        deadline = until(client, number, lambda it: len(client.jobs.standing()) == 1)
        assert deadline.state == "running"
        assert [it.carrying for it in client.jobs.lost()] == [number]
        client.jobs.cancel(number)
        until_ended(client, number)
        assert until_ended(client, client.jobs.submit(job("b"))).state == "done"


def vanished(cluster: LocalCluster, client: PSClient) -> None:
    """Lets the leases end of a standing worker, and of its process for the job, that call no more."""
    assert client.session is not None
    cluster.end_lease(client.session.worker)
    lead: Any = cluster.servers[0]

    async def end() -> None:
        (standing,) = [it for it in lead._coordinator.jobs.standing if it.nonce == client.jobs._nonce]
        standing.last -= 2 * lead._coordinator.jobs.standing.lease

    cluster.call(end())


def test_who_may_join_a_job_that_was_submitted() -> None:
    """Its own workers, by its run id; a stranger cannot open it, and one of another job is refused."""
    with standing(workers=0) as (cluster, client):
        number = client.jobs.submit(job("a", steps=FOREVER))
        with PSClient(cluster.addresses) as other:
            told = other.jobs.wait(5.0)
            until(client, number, lambda it: it.state == "starting")
            with pytest.raises(WrongRun, match="another one runs here"):
                other.join("test", [scalar()], run=told.run + 1)
            said: list[str] = []
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr("grpc_ps.client.joining.SAY_EVERY", 0.0)
                # It waits for as long as it takes, so what it says is what ends the test of it.
                with pytest.raises(InterruptedError):
                    other.join("test", [scalar("x")], on_wait=lambda text: said.append(text) or _enough(said))
            assert said[-1] == "a worker of the job that was submitted to open it"
            session = other.join("test", [scalar()], run=told.run, stated={"steps": FOREVER})
            assert session.opener
            session.open({"w": np.zeros((), np.float32)})
            assert session.begin().batch == 0
            session.note(0, 8.0)
            session.tell()
            assert client.jobs.get(number).loss is None, "no push of it has counted"
            session.send({"w": np.zeros((), np.float32)}, 1)
            assert session.wait().outcome == "APPLIED"
            client.jobs.cancel(number)
            session.note(1, 0.25)
            session.tell()
        assert until_ended(client, number).loss == 0.25, "what it said last, just before it left"


def _enough(said: list[str]) -> None:
    if "submitted" in said[-1]:
        raise InterruptedError


def test_what_the_lead_refuses() -> None:
    with standing(workers=0, presets={"batch_size": 4}) as (_, client):
        with pytest.raises(Mismatch, match="batch_size: shard 0 has 4, the job 5"):
            client.jobs.submit(job("a", batch_size=5))
        with pytest.raises(Mismatch, match="min_workers 3 is more than workers 2"):
            client.jobs.submit(job("a", workers=2, min_workers=3))
        with pytest.raises(Mismatch, match="workers: a job in rounds has to say how many"):
            client.jobs.submit(job("a", mode="sync"))
        assert client.jobs.list() == ()
    with LocalCluster(1) as cluster, PSClient(cluster.addresses) as client:
        for call in (lambda: client.jobs.submit(job("a")), lambda: client.jobs.wait(0.0)):
            with pytest.raises(UsageError, match="this cluster takes no jobs: start shard 0 with --keep-alive"):
                call()
        assert client.jobs.list() == ()
        assert not client.status().takes_jobs


def test_a_worker_that_brings_its_own_job_is_waited_for() -> None:
    """A job that a worker opened itself comes first; what is submitted meanwhile begins when it is done."""
    with standing(workers=1) as (cluster, client):
        queued: list[int] = []

        def gradient(worker: int, batch: int, parameters: Any) -> Any:
            if not queued:
                queued.append(client.jobs.submit(job("b")))
            waiting = client.jobs.get(queued[0])
            assert (waiting.state, waiting.waiting_for) == ("queued", "the job that runs here to end")
            return constant(-1.0)(worker, batch, parameters)

        stated = {"steps": 5, "learning_rate": 1.0}
        outcome = run_worker(cluster.addresses, [scalar()], gradient, stated=stated)
        assert (outcome.global_step, float(outcome.parameters["w"])) == (5, 5.0)
        assert until_ended(client, queued[0]).state == "done"
        assert client.pull().values.keys() == {"b"}


def test_memory_does_not_grow_from_job_to_job() -> None:
    """What a shard's process holds after eight jobs of 4 MB with Adam's slots is what it holds after three."""
    specs = [ParameterSpec(name="w", shape=(1000, 1000), dtype="float32")]
    with Command(*shard_process(keep_alive=True)) as shard:
        address = ready(shard)
        with LightStanding(address, lambda it: (specs, constant(-1.0))), PSClient(address) as client:
            held = []
            for _ in range(8):
                until_ended(client, client.jobs.submit(job("w", optimizer="adam", steps=2)))
                held.append(resident_bytes(shard.process.pid))
            # One job's values, slots and push are 16 MB, some of which may be held at one look and not at the other.
            assert held[-1] - held[2] < 16_000_000, held


def resident_bytes(pid: int) -> int:
    found = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found
    return int(found[1]) * 1024


def test_a_shard_that_loses_its_state_costs_the_job_and_not_the_cluster() -> None:
    """Without checkpoints the job fails, exit 4; the shard that has come back carries out the next one."""
    with Mortal(2, keep_alive=True) as cluster, PSClient(cluster.addresses) as client:
        with LightStanding(cluster.addresses) as worker:
            number = client.jobs.submit(job("a", steps=FOREVER))
            until(client, number, lambda it: it.global_step > 0)
            cluster.call(cluster.restart(1))
            failed = until_ended(client, number)
            assert (failed.state, failed.exit_code) == ("failed", 4)
            assert "shard 1 lost its state and no checkpoint is configured" in failed.reason
            following = client.jobs.submit(job("b"))
            assert until_ended(client, following).state == "done"
            np.testing.assert_array_equal(client.pull().values["b"], [5, 5, 5])
        assert worker.carried == [number, following]


def test_what_ends_the_cluster_ends_its_standing_workers() -> None:
    with standing() as (cluster, client):
        workers = [LightStanding(cluster.addresses, by_name) for _ in range(2)]
        with contextlib.ExitStack() as stack:
            for worker in workers:
                stack.enter_context(worker)
            number = client.jobs.submit(job("a", steps=FOREVER))
            until(client, number, lambda it: it.workers == 4)
            client.stop()
            assert cluster.wait_ended() == [None]
            for worker in workers:
                worker.join(30)
                assert worker.told is not None
                assert (worker.told.closing, worker.told.exit_code) == (True, 0)
