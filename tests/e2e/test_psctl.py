"""psctl as a user calls it, with real shards and workers."""

from __future__ import annotations

import json
import os
import re
import select
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import DEADLINE, UNHURRIED, Command, run

from grpc_ps.client.cluster_file import ClusterFile

pytestmark = pytest.mark.e2e


@contextmanager
def launching(folder: Path, shards: int, workers: int) -> Iterator[Command]:
    """A launch that would train for ever; all workers have joined."""
    flags = ["--ps", shards, "--workers", workers, "--model", "linear", "--steps", 10**9, "--log-dir", folder]
    for worker in range(workers):
        flags += ["--fault", f"worker {worker}: {UNHURRIED}"]
    with Command("psctl", "launch", *flags) as command:
        for worker in range(workers):
            command.until(rf"^\[worker {worker}\] .*local_step")
        yield command


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The log folder of `launched`."""
    return tmp_path_factory.mktemp("launched")


@pytest.fixture(scope="module")
def launched(folder: Path) -> Iterator[Command]:
    """Two shards and two workers for all tests that leave them running, and for the last of these, which stops them."""
    with launching(folder, 2, 2) as command:
        yield command


def timed_status(addresses: str) -> Any:
    """The status once all workers and shards have told where their time goes."""
    deadline = time.monotonic() + DEADLINE
    while True:
        record = json.loads(run("psctl", "status", "--ps", addresses, "--json").stdout)
        if all(each["times"] for each in (*record["workers"], *record["shards"])):
            return record
        assert time.monotonic() < deadline, record


def assert_nothing_is_left(folder: Path) -> None:
    cluster = ClusterFile.read(folder)
    for process in (*cluster.shards, *cluster.workers):
        try:
            descriptor = os.pidfd_open(process.pid)
        except ProcessLookupError:
            continue
        try:
            assert select.select([descriptor], [], [], DEADLINE)[0], f"{process.name} still runs"
        finally:
            os.close(descriptor)


@pytest.mark.usefixtures("launched")
def test_status(folder: Path) -> None:
    status = run("psctl", "status", "--log-dir", folder, "--json")
    assert status.returncode == 0, status.stderr
    record = json.loads(status.stdout)
    assert (record["phase"], record["model"], len(record["shards"])) == ("running", "linear", 2)
    assert [worker["worker"] for worker in record["workers"]] == [0, 1]
    addresses = ",".join(shard["address"] for shard in record["shards"])
    assert ClusterFile.read(folder).addresses == tuple(addresses.split(","))
    record = timed_status(addresses)
    assert all(worker["times"]["compute"] > 0 for worker in record["workers"])
    assert all(shard["times"]["apply"] > 0 for shard in record["shards"])
    table = run("psctl", "status", "--ps", addresses)
    assert re.match(r"running, linear, async, global step \d+ of 1000000000\n", table.stdout)
    part = r"(?: +\d+(?:\.\d\d)? \(\d+%\))"
    for number in (0, 1):
        assert re.search(rf"^ +{number} +[\d.]+{part}{{6}} *$", table.stdout, re.MULTILINE), "a step of each worker"
        assert re.search(rf"^ +{number} +[\d.]+{part}{{3}} *$", table.stdout, re.MULTILINE), "the work of each shard"
    refused = run("psctl", "evaluate", "--log-dir", folder)
    assert refused.returncode == 2, "linear's data has no test set"
    assert refused.stderr.startswith("psctl: error: --model linear: ")
    placed = run("psctl", "placement", "--log-dir", folder, "--json")
    assert [parameter["name"] for parameter in json.loads(placed.stdout)["parameters"]] == ["w", "b"]


@pytest.mark.usefixtures("launched")
def test_a_running_job_is_changed_and_watched(folder: Path) -> None:
    def change(*flags: object) -> Any:
        done = run("psctl", "set", "--log-dir", folder, "--json", *flags)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def reading() -> Any:
        return json.loads(run("psctl", "status", "--log-dir", folder, "--json").stdout)

    with Command("psctl", "watch", "--log-dir", folder, "--interval", 0.05) as watch:
        watch.until(r"running, linear, async, global step \d+ of 1000000000, .*steps/s")
        changed = change("--mode", "sync", "--workers", 2, "--learning-rate-factor", 0.5)
        assert {name: values["new"] for name, values in changed["changed"].items()} == {
            "mode": "sync",
            "workers": 2,
            "learning_rate_factor": 0.5,
        }
        watch.until(r"linear, sync, .*\(0\.5 of the schedule's\), N = 2, K = 0")
        refused = run("psctl", "set", "--log-dir", folder, "--workers", 5, "--backup", 1)
        assert refused.returncode == 2
        assert re.fullmatch(r"psctl: error: .*workers 5.*\n", refused.stderr)
        assert reading()["settings"]["backup"] == 0, "all of a change takes place or nothing"
        change("--pause")
        watch.until("linear, sync, .*, paused,")
        change("--mode", "async", "--max-staleness", 3, "--resume")
        resumed = int(watch.until(r"linear, async, global step (\d+) .*at most 3 pushes ahead")[1])
        watch.until(rf"global step (?!{resumed} )\d+ .*at most 3 pushes ahead")
        with Command("psctl", "watch", "--log-dir", folder, "--json") as other:
            other.until(r'^\{.*"global_step"')
            other.process.send_signal(signal.SIGINT)
            assert other.wait() == 130
        assert reading()["phase"] == "running"


def test_stop(launched: Command, folder: Path) -> None:
    with Command("psctl", "watch", "--log-dir", folder, "--interval", 0.05) as watch:
        watch.until("running, linear, ")
        stopped = run("psctl", "stop", "--log-dir", folder)
        assert re.fullmatch(r"stopped the job at global step \d+; the cluster ends\n", stopped.stdout), stopped.stderr
        assert (watch.wait(), launched.wait()) == (0, 0), watch.text + launched.text
    assert re.search(r"^stopped on request: global step \d+, loss \S+, [0-9.]+ s$", launched.text, re.MULTILINE)
    assert_nothing_is_left(folder)
    after = run("psctl", "status", "--log-dir", folder)
    assert after.returncode == 4
    assert f"the cluster of {folder} has ended with exit code 0" in after.stderr


def test_placement_of_a_model_that_does_not_run() -> None:
    placed = run("psctl", "placement", "--model", "mnist", "--model-arg", "hidden=1000", "--shards", 4, "--json")
    assert placed.returncode == 0, placed.stderr
    record = json.loads(placed.stdout)
    assert [tuple(parameter["shape"]) for parameter in record["parameters"]] == [
        (784, 1000),
        (1000,),
        (1000, 10),
        (10,),
    ]
    assert record["bytes"] == 4 * (784 * 1000 + 1000 + 1000 * 10 + 10)
    assert record["largest_over_mean"] <= 1.25
    refused = run("psctl", "placement", "--model", "mnist", "--model-arg", "hiden=1000", "--shards", 4)
    assert refused.returncode == 2
    assert refused.stderr.startswith("psctl: error: --model-arg hiden=1000: mnist has no such argument")


def test_a_job_that_ends_by_a_metric_says_so(tmp_path: Path) -> None:
    flags = ("--model", "mnist", "--until", "accuracy=0.5", "--eval-every", 20, "--log-dir", tmp_path)
    ended = run("psctl", "launch", "--steps", 10**9, *flags)
    assert ended.returncode == 0, ended.stderr
    assert re.search(r"^.*accuracy.*: global step \d+, accuracy 0\.\d+, loss [\d.e-]+, ", ended.stdout, re.MULTILINE)


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_when_the_launcher_is_ended_nothing_is_left(tmp_path: Path, number: signal.Signals, code: int) -> None:
    with launching(tmp_path, 1, 1) as launched:
        launched.process.send_signal(number)
        assert launched.wait() == code, launched.text
    assert_nothing_is_left(tmp_path)


def test_a_killed_worker_ends_all(tmp_path: Path) -> None:
    with launching(tmp_path, 1, 2) as launched:
        os.kill(ClusterFile.read(tmp_path).workers[1].pid, signal.SIGKILL)
        assert launched.wait() == 137, launched.text
    assert launched.lines[-1] == f"psctl: error: worker 1 failed with exit code 137; logs: {tmp_path}"
    assert_nothing_is_left(tmp_path)


def test_b09_an_unknown_model_is_refused_before_anything_starts(tmp_path: Path) -> None:
    """Fault B09."""
    refused = run("psctl", "launch", "--model", "mnits", "--log-dir", tmp_path / "logs")
    assert refused.returncode == 2
    assert refused.stderr.startswith("psctl: error: ")
    assert "mnits" in refused.stderr
    assert "did you mean" in refused.stderr
    assert not (tmp_path / "logs").exists()
