"""Jobs that clients submit, on shards with a folder of checkpoints: a lead that dies goes on with job and queue."""

from __future__ import annotations

import asyncio
import json
import os
import threading
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from history import wait_for
from light_worker import constant, run_worker
from recovery_bed import RecoveryBed
from saved_jobs import whole_steps
from standing_workers import LightStanding, by_name, until, until_ended

from grpc_ps.client import PSClient
from grpc_ps.client.jobs import JobRequest, JobStatus
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import PeerLost, PeerUnreachable
from grpc_ps.psserver.checkpoint_keeper import CheckpointKeeper
from grpc_ps.psserver.lead.log import Done


def job(name: str, steps: int) -> JobRequest:
    """SGD with rate 1 and gradients of -1: after n steps every element is n."""
    return JobRequest(model="linear", name=name, stated={"learning_rate": 1.0, "steps": steps})


def test_each_job_has_a_folder_and_a_lead_that_is_killed_goes_on_with_job_and_queue(tmp_path: Path) -> None:
    """Killed at step 20 of the second of three jobs: it goes on from step 10, the third one follows."""
    with RecoveryBed(tmp_path, keep_alive=True, checkpoints={"steps": 10}) as bed, PSClient(bed.addresses) as client:
        bed.at_step(20, lambda: bed.kill(0))
        _, second, third = submitted(client, job("a", 10), job("b", 40), job("c", 5))
        with LightStanding(bed.addresses), LightStanding(bed.addresses):
            bed.until_dead(0)
            run = json.loads((tmp_path / "queue.json").read_text())["run"]
            bed.start(0)
            done = until_ended(client, second)
            assert (done.state, done.global_step, f"{done.run:016x}") == ("done", 40, run)
            assert until_ended(client, third).state == "done"
            bed.log.until("resumed ", "job-0002")
            np.testing.assert_array_equal(client.pull().values["c"], [5, 5, 5])
            assert [it.state for it in client.jobs.list()] == ["done"] * 3
        assert whole_steps(tmp_path) == []
        assert [whole_steps(tmp_path / f"job-000{number}")[-1] for number in (1, 2, 3)] == [10, 40, 5]
        assert client.stop() == 5
        assert bed.wait_ended() == [None, None]
    kept = json.loads((tmp_path / "queue.json").read_text())
    assert [it["state"] for it in kept["jobs"]] == ["DONE"] * 3


def submitted(client: PSClient, *jobs: JobRequest) -> list[int]:
    """Their numbers. While nobody stands by: so all of them are in the queue before one is carried out."""
    assert client.jobs.standing() == ()
    return [client.jobs.submit(job) for job in jobs]


def test_a_lead_that_is_killed_between_jobs_has_the_queue(tmp_path: Path) -> None:
    """The other shard stays; strangers do not open a job then; a new one begins where numbers went on."""
    with RecoveryBed(tmp_path, keep_alive=True) as bed, PSClient(bed.addresses) as client:
        with LightStanding(bed.addresses):
            until_ended(client, client.jobs.submit(job("a", 5)))
        until(client, 1, lambda it: not client.jobs.standing())
        waiting = client.jobs.submit(job("b", 7))
        assert client.status().checkpoint is not None, "where there is a folder the queue is kept"
        bed.restart(0)
        assert [(it.number, it.state, it.global_step) for it in answered(client)] == [(1, "done", 5), (2, "queued", 0)]
        with LightStanding(bed.addresses):
            assert until_ended(client, waiting).state == "done"
        np.testing.assert_array_equal(client.pull().values["b"], [7, 7, 7])
        assert not bed.ended[1].done()


def test_a_lead_that_is_killed_before_the_shards_hear_of_the_next_job_begins_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its file has the run of a job that the other shard has not heard of: that one drops what it has, and follows."""
    write, killed = CheckpointKeeper.write_queue, threading.Event()

    async def written(keeper: CheckpointKeeper, text: str) -> None:
        await write(keeper, text)
        if text.count('"STARTING"') and text.count('"DONE"') and not killed.is_set():
            killed.set()
            bed.kill(0)
            await asyncio.sleep(60.0)  # It dies here.

    of_job, keepers = CheckpointKeeper.of_job, []

    def made(keeper: CheckpointKeeper, within: str) -> CheckpointKeeper:
        keepers.append(of_job(keeper, within))
        return keepers[-1]

    monkeypatch.setattr(CheckpointKeeper, "write_queue", written)
    monkeypatch.setattr(CheckpointKeeper, "of_job", made)
    with RecoveryBed(tmp_path, keep_alive=True) as bed, PSClient(bed.addresses) as client:
        first, second = submitted(client, job("a", 5), job("b", 7))
        with LightStanding(bed.addresses):
            bed.until_dead(0)
            # The bed knows of the present job's folder alone; the kernel would let go of this one, too.
            os.close(keepers[-1]._folder._lock._descriptor)
            bed.start(0)
            assert until_ended(client, second).state == "done"
        np.testing.assert_array_equal(client.pull().values["b"], [7, 7, 7])
        assert client.jobs.get(first).state == "done"
        assert not bed.ended[1].done()


def answered(client: PSClient) -> list[JobStatus]:
    """The jobs, once the lead answers again."""
    jobs: list[JobStatus] = []

    def answers() -> bool:
        with suppress(PeerUnreachable, PeerLost):
            jobs.extend(client.jobs.list())
        return bool(jobs)

    wait_for(answers, "the lead to say which jobs there are")
    return jobs


def test_a_job_whose_folder_cannot_be_used_fails_and_the_next_one_runs(tmp_path: Path) -> None:
    with RecoveryBed(tmp_path, shards=1, keep_alive=True) as bed, PSClient(bed.addresses) as client:
        (tmp_path / "job-0001").write_text("in the way")
        with LightStanding(bed.addresses):
            first, second = (client.jobs.submit(job(name, 5)) for name in "ab")
            failed = until_ended(client, first)
            assert (failed.state, failed.exit_code) == ("failed", 6)
            assert "job-0001" in failed.reason
            assert until_ended(client, second).state == "done"


def test_a_shard_that_dies_costs_the_job_some_steps(tmp_path: Path) -> None:
    """A follower is started again: the job returns to its newest checkpoint, in its own folder."""
    with (
        RecoveryBed(tmp_path, keep_alive=True, checkpoints={"steps": 10}) as bed,
        PSClient(bed.addresses) as client,
        LightStanding(bed.addresses),
    ):
        bed.at_step(20, lambda: bed.kill(1))
        number = client.jobs.submit(job("a", 30))
        bed.until_dead(1)
        bed.start(1)
        assert until_ended(client, number).state == "done"
        np.testing.assert_array_equal(client.pull().values["a"], [30, 30, 30])
        bed.log.until("rollback ")
        # Ten steps may be faster than the commit of the checkpoint before them.
        assert [to_step for _, to_step in bed.log.rollbacks()] in ([0], [10])
        bed.log.check_nothing_confirmed_is_lost()


def test_a_job_that_a_worker_brings_is_saved_where_it_always_was(tmp_path: Path) -> None:
    specs = [ParameterSpec(name="w", shape=(3,), dtype="float32")]
    with RecoveryBed(tmp_path, shards=1, keep_alive=True) as bed, PSClient(bed.addresses) as client:
        run_worker(bed.addresses, specs, constant(-1.0), stated={"steps": 5})
        with LightStanding(bed.addresses, by_name):
            until_ended(client, client.jobs.submit(job("a", 5)))
    assert whole_steps(tmp_path)[-1] == whole_steps(tmp_path / "job-0001")[-1] == 5


@pytest.mark.parametrize("when", ["running", "queued"])
def test_a_stop_keeps_what_is_not_over(tmp_path: Path, when: str) -> None:
    """The cluster is told to end and started again: the job that ran goes on, the one that waited comes after it."""
    with RecoveryBed(tmp_path, shards=1, keep_alive=True) as bed, PSClient(bed.addresses) as client:
        with LightStanding(bed.addresses):
            running, waiting = client.jobs.submit(job("a", 10**9)), client.jobs.submit(job("b", 5))
            at = until(client, running, lambda it: it.global_step > 5).global_step
            bed.interrupt(0)
            bed.ended_with(0)
        bed.start(0)
        number = running if when == "running" else waiting
        with LightStanding(bed.addresses):
            if when == "running":
                until(client, number, lambda it: it.state == "running" and it.global_step > at)
            client.jobs.cancel(running)
            until_ended(client, running)
            assert until_ended(client, waiting).state == "done"


def test_a_job_that_was_told_to_end_ends_with_a_lead_that_comes_back(tmp_path: Path) -> None:
    """The one before was killed when it had written that, and before anybody had left."""
    with (
        RecoveryBed(tmp_path, shards=1, keep_alive=True, checkpoints={"steps": 10}) as bed,
        PSClient(bed.addresses) as client,
    ):
        bed.at_step(20, lambda: bed.kill(0))
        (number,) = submitted(client, job("a", 10**9))
        with LightStanding(bed.addresses):
            bed.until_dead(0)
            file = tmp_path / "queue.json"
            record = json.loads(file.read_text())
            record["jobs"][0]["ending"] = "cancelled"
            file.write_text(json.dumps(record))
            bed.start(0)
            ended = until_ended(client, number)
            assert (ended.state, ended.exit_code) == ("cancelled", 7)


def test_a_queue_that_cannot_be_written_does_not_forget_which_job_the_shards_have(tmp_path: Path) -> None:
    file = tmp_path / "queue.json"
    with RecoveryBed(tmp_path, keep_alive=True) as bed, PSClient(bed.addresses) as client:
        with LightStanding(bed.addresses):
            first = until_ended(client, client.jobs.submit(job("a", 5)))
        until(client, 1, lambda it: not client.jobs.standing())
        failing = client.jobs.submit(job("b", 5))
        file.unlink()
        file.mkdir()
        with LightStanding(bed.addresses):
            assert (until_ended(client, failing).exit_code, failing) == (6, 2)
        until(client, 1, lambda it: not client.jobs.standing())
        file.rmdir()
        client.jobs.submit(job("c", 5))
        assert json.loads(file.read_text())["run"] == f"{first.run:016x}"


def test_a_stop_counts_that_comes_while_a_job_begins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The cluster is told to end while the queue is written: nobody would carry the job out, and it must not wait."""
    write, begun = CheckpointKeeper.write_queue, threading.Event()

    async def written(keeper: CheckpointKeeper, text: str) -> None:
        await write(keeper, text)
        if "STARTING" in text and not begun.is_set():
            begun.set()
            lead = bed.servers[0]._coordinator
            assert lead is not None
            lead.stop(Done(0, "asked to"))

    monkeypatch.setattr(CheckpointKeeper, "write_queue", written)
    with RecoveryBed(tmp_path, shards=1, keep_alive=True) as bed, PSClient(bed.addresses) as client:
        submitted(client, job("a", 5))
        with LightStanding(bed.addresses):
            assert bed.wait_ended() == [None]
    assert begun.is_set()
