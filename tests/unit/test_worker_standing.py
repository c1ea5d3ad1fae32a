"""A worker without a model: which flags it takes, what it starts for a job, and how that ends."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest

from grpc_ps.client.jobs import Assignment, Carried, JobQueue, JobRequest
from grpc_ps.client.shared.errors import Ending, JobFailed, PeerLost, PeerUnreachable
from grpc_ps.worker.command import worker
from grpc_ps.worker.standing import StandingConfig, StandingWorker, flags_for, standing_config

PS = ("--ps", "a:1,b:2")


def config_of(*args: str) -> StandingConfig:
    return standing_config(worker.make_context("worker", [*PS, *args]).params)


def test_a_standing_workers_own_flags_are_passed_on() -> None:
    config = config_of("--device", "cpu:1", "--grace", "3", "--connect-timeout", "9", "--fault", "drop:Join@0.5")
    assert config.addresses == ("a:1", "b:2")
    assert (config.grace, config.connect_timeout) == (3.0, 9.0)
    flags = flags_for(config, JobRequest(model="linear"), run=0xABC)
    params = worker.make_context("worker", flags).params
    assert (params["ps"], params["model"], params["run"], params["device"]) == ("a:1,b:2", "linear", 0xABC, "cpu:1")
    assert (params["grace"], params["connect_timeout"]) == (3.0, 9.0)
    assert [str(fault) for fault in params["fault"]] == ["drop:Join@0.5"]
    assert params["insecure"] is False


@pytest.mark.parametrize(
    ("own", "job", "given"),
    [
        (("--data-dir", "/d"), {"model": "mnist"}, {"data_dir": Path("/d"), "data": None}),
        (("--data-dir", "/d"), {"model": "mnist", "options": {"data": "digits"}}, {"data_dir": None, "data": "digits"}),
        (("--data-dir", "/d"), {"model": "linear"}, {"data_dir": None, "data": None}),
        (("--threads", "2"), {"model": "linear"}, {"threads": 2}),
        (("--threads", "2"), {"model": "linear", "stated": {"threads": 1}}, {"threads": 1}),
        (("--index", "2"), {"model": "linear"}, {"index": 2}),
        (("--index", "2"), {"model": "linear", "stated": {"mode": "sync", "workers": 2}}, {"index": None}),
        (("--index", "2"), {"model": "linear", "stated": {"mode": "sync", "workers": 2, "backup": 1}}, {"index": 2}),
    ],
)
def test_what_a_job_does_not_say_the_worker_says_where_it_fits(
    own: tuple[str, ...], job: dict[str, Any], given: dict[str, Any]
) -> None:
    flags = flags_for(config_of(*own), JobRequest(**job), run=1)
    params = worker.make_context("worker", flags).params
    assert {name: params[name] for name in given} == given


@pytest.mark.parametrize(
    ("args", "says"),
    [
        (("--steps", "5"), "--steps: needs --model; without it the jobs that are submitted say so"),
        (("--model-arg", "a=1"), "--model-arg: needs --model; without it the jobs that are submitted say so"),
        (("--overlap",), "--overlap: needs --model; without it the jobs that are submitted say so"),
        (("--data", "digits", "--data-dir", "d"), "--data digits and --data-dir d exclude each other"),
        (
            ("--data", "digit"),
            "--data digit: must be digits, synthetic, some of data_batch_1 to data_batch_5 or file.py:attribute"
            " (did you mean digits?)",
        ),
    ],
)
def test_flags_of_a_job_need_a_model(args: tuple[str, ...], says: str) -> None:
    with pytest.raises(click.UsageError) as refused:
        config_of(*args)
    assert refused.value.format_message() == says


class Lead(JobQueue):
    """Answers a standing worker with what a test says, one after the other; then the cluster ends.

    Attributes:
        calls: what the worker said: the run that it carries out, and how its last process ended.
    """

    def __init__(self, *answers: Assignment | Exception, last: Assignment | None = None) -> None:
        self.calls: list[tuple[int, Carried | None]] = []
        self.left = False
        self._answers = list(answers)
        self._last = last or Assignment(closing=True, lease=0.4)
        self.heard: Callable[[int], None] = lambda run: None

    def wait(self, wait: float, *, carrying: tuple[int, int] = (0, 0), ended: Carried | None = None) -> Assignment:
        self.calls.append((carrying[1], ended))
        self.heard(carrying[1])
        if carrying[1]:
            # Beats while a process runs; what they hear is the test's last word to them.
            return Assignment(lease=0.4, over=self.is_over, closing=self.is_over and self.closes)
        answer = self._answers.pop(0) if self._answers else self._last
        if isinstance(answer, Exception):
            raise answer
        return answer

    is_over = closes = False

    def leave(self, timeout: float) -> None:
        self.left = True


def stand_by(lead: Lead, script: str, **config: Any) -> StandingWorker:
    """A standing worker whose jobs are that script, with the flags as its arguments."""
    whole = StandingConfig(**{"addresses": ("a:1",), "own": ("--ps", "a:1"), "grace": 20.0, **config})
    return StandingWorker(whole, lead, [sys.executable, "-c", script])


JOB = Assignment(job=JobRequest(model="linear", stated={"steps": 5}), number=3, run=77, lease=0.4)


def test_a_job_is_a_process_whose_lines_are_passed_on(capfd: pytest.CaptureFixture[str]) -> None:
    lead = Lead(Assignment(lease=0.4), JOB, Assignment(lease=0.4))
    script = "import sys; print(*sys.argv[1:]); print('to stderr', file=sys.stderr)"
    assert stand_by(lead, script).run() == 0
    out, err = capfd.readouterr()
    assert out == "--ps a:1 --run 000000000000004d --model linear --steps 5\n"
    assert "to stderr\n" in err
    told = [ended for carrying, ended in lead.calls if not carrying]
    assert told == [None, None, Carried(number=3, run=77, exit_code=0, part=1), None]


def test_a_process_that_fails_is_told_of_until_the_lead_has_answered(capfd: pytest.CaptureFixture[str]) -> None:
    lead = Lead(JOB, PeerLost("gone"), Assignment(lease=0.4))
    script = "import sys; print('worker: error: no such file', file=sys.stderr); sys.exit(3)"
    assert stand_by(lead, script).run() == 0
    ended = Carried(number=3, run=77, exit_code=3, reason="no such file", part=1)
    assert [ended for carrying, ended in lead.calls if not carrying] == [None, ended, ended, None]


def test_a_process_that_is_killed_is_128_and_the_signal(capfd: pytest.CaptureFixture[str]) -> None:
    lead = Lead(JOB)
    assert stand_by(lead, "import os; os.kill(os.getpid(), 9)").run() == 0
    (ended,) = [ended for _, ended in lead.calls if ended is not None]
    assert (ended.exit_code, ended.number, ended.reason) == (137, 3, "ended by signal 9")


LONG = "import threading; print('at work', flush=True); threading.Event().wait(600)"


def test_a_process_whose_job_is_over_is_ended(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("grpc_ps.worker.standing._DRAIN", 0.1)
    lead = Lead(JOB)
    lead.is_over = True
    assert stand_by(lead, LONG).run() == 0
    (ended,) = [ended for _, ended in lead.calls if ended is not None]
    assert ended.exit_code == 143


def test_a_process_that_ignores_the_signal_is_killed_after_the_grace_time(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("grpc_ps.worker.standing._DRAIN", 0.1)
    lead = Lead(JOB)
    lead.heard = lambda run: setattr(lead, "is_over", "at work" in capfd.readouterr().out or lead.is_over)
    ignoring = "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); " + LONG
    assert stand_by(lead, ignoring, grace=0.1).run() == 0
    (ended,) = [ended for _, ended in lead.calls if ended is not None]
    assert ended.exit_code == 137


def test_a_cluster_that_ends_while_a_job_runs_ends_the_worker_too(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("grpc_ps.worker.standing._DRAIN", 0.1)
    lead = Lead(JOB, Assignment(job=JOB.job, number=4, run=78, lease=0.4))
    lead.is_over = lead.closes = True
    assert stand_by(lead, LONG).run() == 0
    assert all(run in (0, 77) for run, _ in lead.calls)


def test_a_signal_ends_the_process_and_the_worker(capfd: pytest.CaptureFixture[str]) -> None:
    lead = Lead(JOB)
    standing = stand_by(lead, LONG)
    # Another thread, as the one that reads signals is.
    lead.heard = lambda run: threading.Thread(target=standing.interrupt, args=("ended by SIGTERM",)).start()
    with pytest.raises(Ending, match="ended by SIGTERM"):
        standing.run()
    assert lead.left


def test_a_cluster_that_has_failed_is_the_workers_end() -> None:
    lead = Lead(last=Assignment(closing=True, exit_code=4, reason="shard 0 was told to end by a signal"))
    with pytest.raises(JobFailed, match="told to end by a signal") as failed:
        stand_by(lead, LONG).run()
    assert failed.value.exit_code == 4


def test_a_lead_that_never_comes_is_given_up_after_the_connect_timeout() -> None:
    lead = Lead(*[PeerUnreachable("nothing answers")] * 1000)
    with pytest.raises(PeerUnreachable, match=r"^cannot reach a:1 \(waited 0\.2 s; nothing answers\)$"):
        stand_by(lead, LONG, connect_timeout=0.2).run()
