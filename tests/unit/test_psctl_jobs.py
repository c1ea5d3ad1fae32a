"""psctl submit and watch --job: what is sent, what is shown, and the exit codes."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import click
import grpc
import pytest
from fake_control import FakeControl, job_status, status
from fake_programs import install_programs

from grpc_ps.client.commands import follow
from grpc_ps.client.commands.group import run
from grpc_ps.client.shared.errors import Full, JobFailed, Mismatch, PsError, UsageError
from grpc_ps.protos import control_pb2 as wire

STOPPED = wire.StatusResponse.PHASE_STOPPED
# Writes down what it is asked to check.
WORKER = """
import sys
open("checked", "w").write(" ".join(sys.argv[1:]))
if "hidden=none" in sys.argv:
    sys.stderr.write("worker: error: --model-arg hidden=none: must be a whole number")
    sys.exit(2)
"""


@pytest.fixture(autouse=True)
def _programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker that checks flags; Ctrl-C does afterwards what it did."""
    install_programs(tmp_path, monkeypatch, worker=WORKER)
    monkeypatch.setattr(follow, "_LOOK_SECONDS", 0.001)


@pytest.fixture(autouse=True)
def _signals() -> Any:
    before = signal.getsignal(signal.SIGINT)
    yield
    signal.signal(signal.SIGINT, before)


def submit(lead: FakeControl, *args: str) -> int:
    return run(["submit", "--ps", lead.address, "--interval", "0.001", *args])


def running(step: int, milliseconds: int, **fields: Any) -> wire.JobStatus:
    """A job that has applied a gradient of 128 examples a step."""
    counts = {"batches": step, "examples": 128 * step, "running_ms": milliseconds, "loss": 4.664, "generation": 5}
    return job_status("RUNNING", **{"global_step": step, **counts, **fields})


DONE = job_status("DONE", global_step=100, started_ms=1000, ended_ms=13_400)


def test_a_job_is_followed_in_the_fields_form(capsys: pytest.CaptureFixture[str]) -> None:
    evaluated = wire.Evaluation(global_step=100, metrics={"loss": 0.5, "accuracy": 0.9125})
    done = wire.JobStatus()
    done.CopyFrom(DONE)
    done.evaluation.CopyFrom(evaluated)
    with FakeControl() as lead:
        states = [job_status("QUEUED"), job_status("STARTING"), running(0, 100), running(0, 900), running(10, 13_870)]
        lead.jobs = [[state] for state in [*states, running(10, 14_000), running(30, 26_840), done]]
        assert submit(lead, "--model", "mnist") == 0
    assert capsys.readouterr().out.splitlines() == [
        "job 3: submitted",
        "job 3 (mnist): queued",
        "job 3 (mnist): starting",
        "job 3 (mnist): running",
        "step 10, loss = 4.66 (98.7 examples/sec; 1.297 sec/batch)",
        "step 30, loss = 4.66 (197.4 examples/sec; 0.649 sec/batch)",
        "job 3: done: global step 100, accuracy 0.9125, loss 0.5, 12.4 s",
    ]


def test_a_job_without_metrics_ends_with_its_loss(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        lead.jobs = [[job_status("DONE", global_step=100, loss=0.125, started_ms=1000, ended_ms=13_400)]]
        assert submit(lead, "--model", "linear") == 0
    assert capsys.readouterr().out.splitlines()[-1] == "job 3: done: global step 100, loss 0.125, 12.4 s"


NOBODY = "no worker stands by: worker --ps {}, without --model, is one"


@pytest.mark.parametrize("command", ["submit", "watch"])
def test_what_a_job_waits_for_is_said_at_once_and_again(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    waiting = job_status("QUEUED", waiting_for="a standing worker")
    starting = job_status("STARTING", waiting_for="a worker that was told of it to join")
    more = ["--model", "linear"] if command == "submit" else ["--job", "3"]
    for every, times in ((0.0, 3), (3600.0, 1)):
        monkeypatch.setattr(follow, "SAY_EVERY", every)
        with FakeControl() as lead:
            lead.jobs = [[waiting], [waiting], [waiting], [starting], [running(0, 100)], [running(0, 200)], [DONE]]
            # What is asked beside each of the first readings, who stands by, takes no reading away.
            lead.jobs = [jobs for jobs in lead.jobs for _ in range(2 if jobs == [waiting] else 1)]
            assert run([command, "--ps", lead.address, "--interval", "0.001", *more]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[:-1] == [
            *(["job 3: submitted"] if command == "submit" else []),
            *[f"job 3 (mnist): queued: waiting for a standing worker; {NOBODY.format(lead.address)}"] * times,
            "job 3 (mnist): starting: waiting for a worker that was told of it to join",
            "job 3 (mnist): running",
        ]


def test_a_job_behind_others_waits_for_them_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        lead.standing = [wire.StandingWorker(name="a:1", carrying=1)]
        lead.jobs = [[job_status("QUEUED", waiting_for="job 1 and 1 more to end")]] * 2 + [[DONE]]
        assert submit(lead, "--model", "linear") == 0
    assert "job 3 (mnist): queued: waiting for job 1 and 1 more to end" in capsys.readouterr().out.splitlines()


def test_what_is_sent(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--model", "mnist", "--model-arg", "hidden=64", "--name", "first try", "--steps", "100", "--overlap")
    more = ("--data-dir", "/d", "--init-from", "w.npz", "--workers", "2", "--max-staleness", "none", "--detach")
    with FakeControl() as lead:
        assert submit(lead, *args, *more) == 0
    assert capsys.readouterr().out == "job 3\n"
    (job,) = lead.submitted
    assert (job.name, job.model, list(job.arguments), job.members) == ("first try", "mnist", ["hidden=64"], 2)
    assert dict(job.options) == {"data_dir": "/d", "init_from": "w.npz", "overlap": "true"}
    assert (job.stated.steps, job.stated.max_staleness, job.stated.HasField("workers")) == (100, -1, False)
    checked = "--validate --model mnist --model-arg hidden=64 --data-dir /d --overlap"
    assert (tmp_path / "here" / "checked").read_text() == f"{checked} --max-staleness none --steps 100"


def test_in_sync_the_workers_are_the_rounds(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        args = ("--mode", "sync", "--workers", "2", "--backup", "1", "--detach", "--json")
        assert submit(lead, "--model", "linear", *args) == 0
    (job,) = lead.submitted
    assert (job.stated.mode, job.stated.workers, job.stated.backup) == ("sync", 2, 1)
    assert json.loads(capsys.readouterr().out) == {"number": 3}


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--model", "model.py:Model"), "no code travels"),
        (
            ("--model", "mnits"),
            "--model mnits: is no registered model (did you mean mnist?); there are cifar10, embedding, linear, mnist",
        ),
        (("--model", "mnist", "--model-arg", "hidden=none"), "must be a whole number"),
        (("--model", "mnist", "--backup", "1"), "--backup 1: only with --mode sync and --workers"),
        (("--model", "mnist", "--mode", "sync", "--overlap"), "--overlap: only with --mode async"),
        (("--model", "mnist", "--clip-norm", "1", "--clip-value", "1"), "at most one kind of clipping"),
        ((), "Missing option '--model'"),
    ],
)
def test_what_is_wrong_is_found_before_a_connection_is_made(args: tuple[str, ...], says: str) -> None:
    with pytest.raises((click.UsageError, PsError)) as refused:
        run(["submit", "--ps", "127.0.0.1:1", *args])
    error = refused.value
    assert says in (error.format_message() if isinstance(error, click.UsageError) else str(error))
    assert error.exit_code == 2


@pytest.mark.parametrize("error", [UsageError("takes no jobs"), Mismatch("steps: ..."), Full("100 jobs wait")])
def test_what_the_lead_refuses(error: PsError) -> None:
    with FakeControl() as lead:
        lead.number = error
        with pytest.raises(type(error), match=str(error)):
            submit(lead, "--model", "linear")


FAILED = job_status("FAILED", exit_code=3, reason="host:1: /d: no such folder")
CANCELLED = job_status("CANCELLED", exit_code=7, reason="cancelled at global step 9")


@pytest.mark.parametrize(
    ("last", "says", "code"),
    [
        (FAILED, "job 3 has failed with exit code 3: host:1: /d: no such folder", 3),
        (CANCELLED, "job 3 was cancelled at global step 9", 7),
    ],
)
@pytest.mark.parametrize("command", ["submit", "watch"])
def test_the_exit_code_is_the_jobs(command: str, last: wire.JobStatus, says: str, code: int) -> None:
    more = ["--model", "linear"] if command == "submit" else ["--job", "3"]
    with FakeControl() as lead:
        lead.jobs = [[running(10, 100)], [last]]
        with pytest.raises(JobFailed, match=f"^{says}$") as failed:
            run([command, "--ps", lead.address, "--interval", "0.001", *more])
    assert failed.value.exit_code == code


class Interrupting(FakeControl):
    """A lead that presses Ctrl-C when it is asked for the job."""

    def ListJobs(self, request: wire.ListJobsRequest, context: grpc.ServicerContext) -> wire.ListJobsResponse:
        os.kill(os.getpid(), signal.SIGINT)
        return super().ListJobs(request, context)


def test_ctrl_c_ends_the_following_and_says_how_to_go_on(capsys: pytest.CaptureFixture[str]) -> None:
    with Interrupting() as lead:
        lead.jobs = [[running(10, 100)]]
        with pytest.raises(click.Abort):
            submit(lead, "--model", "linear")
    last = capsys.readouterr().out.splitlines()[-1]
    assert last == "job 3 goes on: psctl watch --job 3 shows it again, psctl cancel 3 ends it"
    assert not lead.cancelled


def test_ctrl_c_ends_watching_while_the_workers_leave() -> None:
    pressed = iter([signal.SIGINT])

    class Once(FakeControl):
        def ListJobs(self, request: wire.ListJobsRequest, context: grpc.ServicerContext) -> wire.ListJobsResponse:
            for number in pressed:
                os.kill(os.getpid(), number)
            return super().ListJobs(request, context)

    with Once(status(100, run=7, job_number=3, phase=STOPPED)) as lead:
        lead.jobs = [[running(100, 100)], [DONE]]
        with pytest.raises(click.Abort):
            run(["watch", "--ps", lead.address, "--interval", "0.001"])


def test_json_is_one_object_on_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        lead.jobs = [[running(10, 100)], [DONE]]
        assert submit(lead, "--model", "linear", "--json") == 0
    captured = capsys.readouterr()
    record = json.loads(captured.out)
    assert (record["number"], record["state"], record["global_step"], record["exit_code"]) == (3, "done", 100, 0)
    assert "job 3: submitted" in captured.err


def test_numbers_that_json_does_not_have_are_none(capsys: pytest.CaptureFixture[str]) -> None:
    evaluated = wire.Evaluation(global_step=100, metrics={"loss": float("nan"), "accuracy": 0.1})
    last = job_status("FAILED", exit_code=5, reason="NaN", loss=float("inf"), evaluation=evaluated)
    with FakeControl() as lead:
        lead.jobs = [[last]]
        with pytest.raises(JobFailed, match="exit code 5: NaN"):
            submit(lead, "--model", "linear", "--json")
    record = json.loads(capsys.readouterr().out, parse_constant=pytest.fail)
    assert (record["loss"], record["metrics"]) == (None, {"loss": None, "accuracy": 0.1})


def test_a_lead_that_has_lost_its_queue(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        lead.jobs = [[running(10, 100)], []]
        with pytest.raises(JobFailed, match=r"^job 3 is gone: "):
            submit(lead, "--model", "linear")
        with pytest.raises(UsageError, match=r"^there is no job 4: "):
            run(["watch", "--ps", lead.address, "--job", "4"])


def test_watching_a_cluster_that_stands_ends_with_the_job_and_its_exit_code(
    capsys: pytest.CaptureFixture[str],
) -> None:
    idle = status(0, run=1, phase=wire.StatusResponse.PHASE_EMPTY)
    with FakeControl(idle, status(10, run=7, job_number=3), status(0, run=8, job_number=4)) as lead:
        lead.jobs = [[running(99, 100)], [FAILED]]
        with pytest.raises(JobFailed) as failed:
            run(["watch", "--ps", lead.address, "--interval", "0.001"])
    assert failed.value.exit_code == 3
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(", ")[:2] for line in lines] == [["empty", "mnist"], ["running", "job 3"]]
    evaluated = wire.Evaluation(global_step=100, metrics={"accuracy": 0.9125})
    done = job_status("DONE", global_step=100, started_ms=1000, ended_ms=13_400, evaluation=evaluated)
    for json_too in ([], ["--json"]):
        with FakeControl(status(10, run=7, job_number=3), status(100, run=7, job_number=3, phase=STOPPED)) as lead:
            lead.jobs = [[done]]
            assert run(["watch", "--ps", lead.address, "--interval", "0.001", *json_too]) == 0
        last = capsys.readouterr().out.splitlines()[-1]
        assert json_too or last == "job 3: done: global step 100, accuracy 0.9125, 12.4 s"
        assert last.startswith("{") == bool(json_too)
