"""psctl jobs and cancel: what is listed, and what is taken out."""

from __future__ import annotations

import json

import pytest
from fake_control import FakeControl, job_status
from printed_tables import table_rows

from grpc_ps.client.commands.group import run
from grpc_ps.protos import control_pb2 as wire


def test_the_jobs_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    failed = job_status("FAILED", exit_code=3, reason="host:1: /d: no such folder")
    with FakeControl() as lead:
        present = job_status("RUNNING", number=4, global_step=10, workers=2, started_ms=2000, running_ms=2500)
        lead.jobs = [[failed, present, job_status("QUEUED", number=5)]]
        busy = wire.StandingWorker(name="a:1", carrying=4)
        lead.standing = [busy, wire.StandingWorker(name="b:2", failure="no data", failed=3)]
        lead.lost = [wire.StandingWorker(name="c:3", carrying=4, silent_ms=35_000)]
        assert run(["jobs", "--ps", lead.address]) == 0
    output = capsys.readouterr().out
    rows = [row.split(" ") for row in table_rows(output, "jobs")]
    assert [row[:7] for row in rows[:3]] == [
        ["3", "try", "mnist", "failed", "0", "of", "100"],
        ["4", "try", "mnist", "running", "10", "of", "100"],
        ["5", "try", "mnist", "queued", "0", "of", "100"],
    ]
    assert (rows[0][7], rows[1][7], rows[1][-2:]) == ("3", "2", ["2.5", "s"])
    assert "2 standing workers, 1 of them carrying out a job" in output
    assert "job 3: host:1: /d: no such folder" in output
    assert "job 3: b:2: no data" in output
    assert "job 4: c:3: lost, not heard of for 35 s (was it killed or stopped" in output
    with FakeControl() as lead:
        lead.jobs = [[job_status("RUNNING")]]
        assert run(["jobs", "--ps", lead.address, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["jobs"][0]["number"], record["standing"], record["lost"]) == (3, [], [])


def test_a_job_is_cancelled(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        assert run(["cancel", "4", "--ps", lead.address]) == 0
    assert lead.cancelled == [4]
    assert capsys.readouterr().out == "job 4 is cancelled at global step 9: its workers leave\n"
