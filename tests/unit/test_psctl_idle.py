"""psctl status and psctl stop of a cluster that has no job, or one that is over."""

from __future__ import annotations

import json
from typing import Any

import pytest
from fake_control import FakeControl, job_status, status

from grpc_ps.client.commands.group import run
from grpc_ps.protos import control_pb2 as wire

STOPPED, EMPTY = (wire.StatusResponse.Phase.Value(f"PHASE_{name}") for name in ("STOPPED", "EMPTY"))
IDLE = "a job (psctl submit), or a worker that brings one"
NAMES = "cifar10, embedding, linear, mnist"


@pytest.mark.parametrize(
    ("standing", "says"),
    [
        ([], "no worker stands by: worker --ps {address}, without --model, is one"),
        (["h:1"], "1 worker stands by: h:1"),
        ([*"abcdefghi"], "9 workers stand by: a, b, c, d, e, f, g, h and 1 more"),
    ],
)
def test_status_of_a_cluster_that_waits_for_jobs_says_who_stands_by_and_how_to_submit_one(
    standing: list[str], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    empty = {"phase": EMPTY, "job": None, "workers": [], "takes_jobs": True}
    with FakeControl(status(0, waiting_for=IDLE, **empty)) as lead:
        lead.standing = [wire.StandingWorker(name=name) for name in standing]
        assert run(["status", "--ps", lead.address]) == 0
        output = capsys.readouterr().out
    assert output.splitlines()[:3] == [
        f"empty, global step 0, waiting for {IDLE}",
        says.format(address=lead.address),
        f"psctl submit --ps {lead.address} --model NAME submits a job; NAME is one of {NAMES}",
    ]
    assert "activity" not in output, "a table of no workers"


def test_status_of_a_cluster_whose_first_worker_has_not_come_says_nothing_of_jobs(
    capsys: pytest.CaptureFixture[str],
) -> None:
    empty = {"phase": EMPTY, "job": None, "workers": []}
    with FakeControl(status(0, waiting_for="a worker", **empty)) as lead:
        assert run(["status", "--ps", lead.address]) == 0
    assert "submit" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("before", "says", "over", "code"),
    [
        ({"job_number": 3}, "stopped job 3 at global step 30; the cluster ends", False, 0),
        ({"phase": EMPTY}, "no job was running; the cluster ends", False, 0),
        (
            {"phase": STOPPED, "exit_code": 5, "reason": "NaN in w", "job_number": 3},
            "job 3 was over already, at global step 30 with exit code 5 (NaN in w); the cluster ends",
            True,
            5,
        ),
        (
            {"phase": STOPPED},
            "the job was over already, at global step 30 with exit code 0; the cluster ends",
            True,
            0,
        ),
    ],
)
def test_stop_says_what_it_ended(
    capsys: pytest.CaptureFixture[str], before: dict[str, Any], says: str, over: bool, code: int
) -> None:
    with FakeControl(status(**before)) as lead:
        assert run(["stop", "--ps", lead.address]) == 0
        assert run(["stop", "--ps", lead.address, "--json"]) == 0
    said, record = capsys.readouterr().out.splitlines()
    assert (said, json.loads(record)) == (
        says,
        {"global_step": 30, "over": over, "exit_code": code, "dropped": 0, "kept": 0},
    )


@pytest.mark.parametrize(
    ("queued", "saved", "says", "kept"),
    [
        (1, False, "1 queued job is dropped", 0),
        (2, False, "2 queued jobs are dropped", 0),
        (1, True, "1 queued job goes on where shards are started with the same --checkpoint-dir", 1),
        (2, True, "2 queued jobs go on where shards are started with the same --checkpoint-dir", 2),
    ],
)
def test_stop_says_what_becomes_of_the_queue(
    capsys: pytest.CaptureFixture[str], queued: int, saved: bool, says: str, kept: int
) -> None:
    checkpoint = wire.CheckpointStatus(directory="d") if saved else None
    with FakeControl(status(job_number=3, checkpoint=checkpoint)) as lead:
        lead.jobs = [
            [job_status("DONE", 2), job_status("RUNNING"), *(job_status("QUEUED", 4 + n) for n in range(queued))]
        ]
        assert run(["stop", "--ps", lead.address]) == 0
        assert run(["stop", "--ps", lead.address, "--json"]) == 0
    said, record = capsys.readouterr().out.splitlines()
    assert said == f"stopped job 3 at global step 30; the cluster ends; {says}"
    assert (json.loads(record)["dropped"], json.loads(record)["kept"]) == (queued - kept, kept)
