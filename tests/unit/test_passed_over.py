"""What a worker with a job of its own says of jobs that wait for others."""

from __future__ import annotations

import logging

import pytest
from fake_control import FakeControl, job_status
from ports import held_port

from grpc_ps.client import PSClient
from grpc_ps.worker import passed_over


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    """What is logged, wherever the commands that other tests ran have sent it."""
    monkeypatch.setattr(passed_over, "_LOGGER", logging.getLogger("passed over"))
    return caplog


@pytest.mark.parametrize(
    ("states", "says"),
    [
        (["DONE", "RUNNING"], []),
        (["RUNNING", "QUEUED"], ["1 job waits"]),
        (["QUEUED", "QUEUED", "QUEUED"], ["3 jobs wait"]),
    ],
)
def test_jobs_that_wait_are_told_of_in_one_line(
    states: list[str], says: list[str], said: pytest.LogCaptureFixture
) -> None:
    with FakeControl() as lead, PSClient(lead.address) as client:
        lead.jobs = [[job_status(state, number) for number, state in enumerate(states, 1)]]
        passed_over.note_queue(client.jobs)
    assert [(record.levelname, record.getMessage()) for record in said.records] == [
        ("WARNING", f'queue_passed_over note="{how} here for workers that stand by: leave out --model to be one"')
        for how in says
    ]


def test_a_lead_that_does_not_say_is_no_failure(said: pytest.LogCaptureFixture) -> None:
    with held_port() as port, PSClient(f"127.0.0.1:{port}", timeout=0.01) as client:
        passed_over.note_queue(client.jobs)
    assert not said.records
