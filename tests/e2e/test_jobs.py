"""Jobs sent by a client, by the commands that somebody types: servers and workers stand, a client connects and runs."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from functools import partial

import pytest
from commands import DEADLINE, ENDED, UNHURRIED, Command, ready, run
from standing_workers import until as until_job

from grpc_ps.client import PSClient

pytestmark = pytest.mark.e2e

LONG = ("--model", "linear", "--steps", 10**9)


def submitted(ps: str, *flags: object) -> int:
    ended = run("psctl", "submit", "--ps", ps, *flags, "--detach", "--json")
    assert ended.returncode == 0, ended.stderr
    return int(json.loads(ended.stdout)["number"])


@pytest.mark.timeout(500)
def test_seed_3_submit_follow_ctrl_c_watch_again_cancel_and_a_queue_of_three() -> None:
    """One ps, two workers, a client: jobs are followed and cancelled, one fails, a standing worker is killed."""
    until = partial(until_job, seconds=DEADLINE)
    with ExitStack() as stack:
        flags = ("--keep-alive", "--lease", 6, "--fault", UNHURRIED)
        shard = stack.enter_context(Command("psserver", "--shard", 0, "--port", 0, *flags))
        ps = ready(shard)
        one, two = (stack.enter_context(Command("worker", "--ps", ps)) for _ in range(2))
        reader = stack.enter_context(PSClient(ps))
        client = stack.enter_context(Command("psctl", "submit", "--ps", ps, *LONG, "--interval", 0.2))
        client.until(r"^step \d+, loss = \S+ \([\d.]+ examples/sec; [\d.]+ sec/batch\)$")
        until(reader, 1, lambda job: job.workers == 2)
        client.process.send_signal(signal.SIGINT)
        assert client.wait() == 130
        assert "job 1 goes on: psctl watch --job 1 shows it again, psctl cancel 1 ends it" in client.lines
        again = stack.enter_context(Command("psctl", "watch", "--ps", ps, "--job", 1, "--interval", 0.2))
        missing = submitted(ps, "--model", "mnist", "--data-dir", "/there/is/no/such/folder")
        last = submitted(ps, "--model", "linear", "--steps", 50, "--name", "last")
        assert [job.state for job in reader.jobs.list()] == ["running", "queued", "queued"]
        again.until(r"^step \d+, loss = ")

        two.process.kill()
        shard.until(r"standing_worker_gone")
        step = until(reader, 1, lambda job: job.workers == 1).global_step
        until(reader, 1, lambda job: job.global_step > step)
        assert [worker.carrying for worker in reader.jobs.standing()] == [1]

        assert run("psctl", "cancel", 1, "--ps", ps).returncode == 0
        assert again.wait() == 7
        assert again.lines[-1].startswith("psctl: error: job 1 was cancelled at global step ")
        done = run("psctl", "watch", "--ps", ps, "--job", last)
        assert done.returncode == 0, done.stderr
        assert f"job {last}: done: global step 50, " in done.stdout
        failed = run("psctl", "watch", "--ps", ps, "--job", missing)
        assert failed.returncode == 3
        assert "/there/is/no/such/folder" in failed.stderr
        pulled = reader.pull()
        assert (pulled.global_step, set(pulled.values)) == (50, {"w", "b"})
        assert run("psctl", "stop", "--ps", ps).returncode == 0
        assert (shard.wait(), one.wait()) == (0, 0), shard.text + one.text


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_b58_a_signal_ends_a_worker_that_stands(number: signal.Signals) -> None:
    with (
        Command("psserver", "--shard", 0, "--port", 0, "--keep-alive") as shard,
        Command("worker", "--ps", ready(shard)) as worker,
    ):
        shard.until(r"worker_stands_by")
        worker.process.send_signal(number)
        assert worker.wait(ENDED) == 128 + number, worker.text
        assert "Traceback" not in worker.text


def test_a_worker_without_a_model_needs_a_cluster_that_stands() -> None:
    with Command("psserver", "--shard", 0, "--port", 0) as shard:
        ended = run("worker", "--ps", ready(shard))
    assert ended.returncode == 2
    says = "worker: error: this cluster takes no jobs: start shard 0 with --keep-alive, or a worker with --model"
    assert ended.stderr.splitlines()[-1] == says
