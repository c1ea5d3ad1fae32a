"""The commands as somebody types them in several terminals."""

from __future__ import annotations

import contextlib
import json
import signal
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from commands import ENDED, UNHURRIED, Command, ready, run
from ports import free_port

pytestmark = pytest.mark.e2e


@contextlib.contextmanager
def started(*commands: Command) -> Iterator[tuple[Command, ...]]:
    with contextlib.ExitStack() as stack:
        yield tuple(stack.enter_context(command) for command in commands)


def test_shard_first() -> None:
    """`psserver --shard 0 --port P` and `worker --ps 127.0.0.1:P --model mnist` train and end by themselves."""
    port = free_port()
    with Command("psserver", "--shard", 0, "--port", port) as shard:
        assert ready(shard) == f"127.0.0.1:{port}"
        with Command("worker", "--ps", f"127.0.0.1:{port}", "--model", "mnist", "--steps", 200, "--json") as worker:
            assert (worker.wait(), shard.wait()) == (0, 0), worker.text + shard.text
            assert worker.summary()["global_step"] == 200
            assert worker.summary()["accuracy"] > 0.8


def test_b01_worker_first() -> None:
    """Fault B01: the worker waits, says what for, and trains once the shard is there."""
    port = free_port()
    with Command("worker", "--ps", f"127.0.0.1:{port}", "--model", "linear", "--steps", 20, "--json") as worker:
        worker.until(rf"waiting.*127\.0\.0\.1:{port}")
        with Command("psserver", "--shard", 0, "--port", port) as shard:
            assert (worker.wait(), shard.wait()) == (0, 0), worker.text + shard.text
            assert worker.summary()["global_step"] == 20


def test_two_shards_and_three_workers_whoever_is_eight_seconds_late() -> None:
    """The lead comes eight seconds after the others, and one of the workers when they all wait for it alone."""
    ports = [free_port(), free_port()]
    ps = ",".join(f"127.0.0.1:{port}" for port in ports)
    work = ("worker", "--ps", ps, "--model", "mnist", "--steps", 100, "--mode", "sync", "--workers", 3, "--json")
    with contextlib.ExitStack() as stack:

        def start(*command: object) -> Command:
            return stack.enter_context(Command(*map(str, command)))

        other = start("psserver", "--shard", 1, "--ps", ps)
        workers = [start(*work), start(*work)]
        # The scenario's own delay.
        assert not threading.Event().wait(8)
        lead = start("psserver", "--shard", 0, "--ps", ps)
        for index in range(2):
            lead.until(rf" joined worker={index} ")
        for worker in workers:
            worker.until(" joined ")
        workers.append(start(*work))
        assert [each.wait() for each in (*workers, lead, other)] == [0] * 5, [each.text for each in workers]
        summaries = [worker.summary() for worker in workers]
    assert [summary["global_step"] for summary in summaries] == [100] * 3
    assert all(summary["outcomes"] == {"APPLIED": 100} for summary in summaries)


def test_seed_1_with_status_and_a_worker_that_joins_later() -> None:
    """linear, async, two shards: a second worker goes on from where the job is, and status shows both."""
    with Command("psserver", "--shard", 0, "--shards", 2, "--port", 0) as lead:
        first = ready(lead)
        with Command("psserver", "--shard", 1, "--shards", 2, "--port", 0, "--lead", first) as other:
            ps = f"{first},{ready(other)}"
            flags = ("--ps", ps, "--model", "linear", "--steps", 10**9)
            with started(Command("worker", *flags, "--fault", UNHURRIED)) as (one,):
                one.until(r"global_step (\d{3,})")
                before = json.loads(run("psctl", "status", "--ps", ps, "--json").stdout)["global_step"]
                with started(Command("worker", *flags)) as (two,):
                    joined = int(two.until(r"global_step (\d+), local_step 1\b")[1])
                    status = json.loads(run("psctl", "status", "--ps", ps, "--json").stdout)
                    assert joined > before >= 100
                    assert [worker["worker"] for worker in status["workers"]] == [0, 1]
                    assert [shard["connected"] for shard in status["shards"]] == [True, True]
                    shown = two.until(r"global_step (?:\d{5,}|[2-9]\d{3}).* w = ([-\d.]+), b = ([-\d.]+)")
                    assert run("psctl", "stop", "--ps", ps).returncode == 0
                    assert [one.wait(), two.wait(), lead.wait(), other.wait()] == [0] * 4, two.text
                    assert float(shown[1]) == pytest.approx(0.1, abs=0.005)
                    assert float(shown[2]) == pytest.approx(0.3, abs=0.005)


@pytest.mark.data
def test_seed_2_real_mnist(mnist_folder: str, tmp_path: Path) -> None:
    """1 shard, 2 workers, async, the model's own settings: 95 % on the test images after 3,000 global steps."""
    flags = ("--ps", 1, "--workers", 2, "--model", "mnist", "--data-dir", mnist_folder, "--steps", 3000, "--json")
    ended = run("psctl", "launch", *flags, "--log-dir", tmp_path)
    assert ended.returncode == 0, ended.stderr
    summary = json.loads(ended.stdout.splitlines()[-1])
    assert summary["global_step"] == 3000
    assert summary["accuracy"] >= 0.95


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_b58_a_signal_ends_a_process_in_the_middle_of_training(number: signal.Signals) -> None:
    """Fault B58: within the grace time, with 128 + the signal; the others go on, or are told where a shard ends."""
    with Command("psserver", "--shard", 0, "--port", 0) as shard:
        flags = ("--ps", ready(shard), "--model", "linear", "--steps", 10**9)
        with Command("worker", *flags) as worker, Command("worker", *flags) as other:
            worker.until("global_step")
            other.until("global_step")
            for told in (worker, shard):
                assert (other.process.poll(), shard.process.poll()) == (None, None), other.text + shard.text
                told.process.send_signal(number)
                assert told.wait(ENDED) == 128 + number, told.text
                assert "Traceback" not in told.text
            assert other.wait(ENDED) == 4
            assert "told to end by a signal" in other.text


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_b58_a_signal_ends_a_process_that_waits_at_the_start(number: signal.Signals) -> None:
    address = f"127.0.0.1:{free_port()}"
    with (
        Command("worker", "--ps", address, "--model", "linear") as worker,
        Command("psserver", "--shard", 1, "--shards", 2, "--lead", address, "--port", 0) as shard,
    ):
        ready(shard)
        worker.until("waiting")
        for waiting in (worker, shard):
            waiting.process.send_signal(number)
            assert waiting.wait(ENDED) == 128 + number, waiting.text
            assert "Traceback" not in waiting.text


def test_b02_shards_that_never_come_are_named() -> None:
    """Fault B02: after the connect timeout, exit 4 with exactly the addresses that are missing."""
    missing = f"127.0.0.1:{free_port()}"
    flags = ("--model", "linear", "--connect-timeout", 5)
    with Command("psserver", "--shard", 0, "--shards", 2, "--port", 0) as lead:
        there = ready(lead)
        # Both at once, for each waits.
        with (
            Command("worker", "--ps", missing, *flags) as without_any,
            Command("worker", "--ps", f"{there},{missing}", *flags) as without_one,
        ):
            for worker in (without_any, without_one):
                assert worker.wait() == 4, worker.text
                assert worker.lines[-1].startswith("worker: error: ")
                assert f"cannot reach {missing} " in worker.lines[-1]


def test_b63_a_port_that_is_taken_is_refused() -> None:
    """Fault B63: never a server that pretends to run."""
    with Command("psserver", "--shard", 0, "--port", 0) as shard:
        port = ready(shard).rpartition(":")[2]
        ended = run("psserver", "--shard", 0, "--port", port)
    assert ended.returncode == 2
    assert f"port {port} on 127.0.0.1 cannot be had" in ended.stderr
    assert "READY" not in ended.stdout
