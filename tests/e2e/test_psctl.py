"""psctl as a user calls it: launch, status and stop with real shards and workers."""

import json
import os
import re
import select
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from grpc_ps.client.cluster_file import ClusterFile

# One group: whole clusters run one after the other, beside the smaller tests.
pytestmark = [pytest.mark.e2e, pytest.mark.xdist_group("clusters")]

DEADLINE = 60.0


def psctl(*arguments):
    return [str(Path(sys.executable).with_name("psctl")), *arguments]


def call(*arguments):
    return subprocess.run(psctl(*arguments), capture_output=True, text=True, timeout=DEADLINE)


@pytest.fixture
def launched(tmp_path):
    """A launch of two shards and two workers that would train for ever; both workers have joined."""
    flags = ("--ps", "2", "--workers", "2", "--model", "linear", "--steps", "1000000000", "--log-dir", str(tmp_path))
    with subprocess.Popen(
        psctl("launch", *flags), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        try:
            waiting = {"worker 0", "worker 1"}
            lines = []
            while waiting:
                lines.append(process.stdout.readline())
                assert lines[-1], f"psctl launch ended: {lines}"
                waiting -= {match[1] for match in [re.match(r"\[(worker \d)\] .*local_step", lines[-1])] if match}
            yield process
        finally:
            process.kill()


def assert_nothing_is_left(folder):
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


def test_status_and_stop(launched, tmp_path):
    status = call("status", "--log-dir", str(tmp_path), "--json")
    assert status.returncode == 0, status.stderr
    record = json.loads(status.stdout)
    assert (record["phase"], record["model"], len(record["shards"])) == ("running", "linear", 2)
    assert [worker["worker"] for worker in record["workers"]] == [0, 1]
    addresses = ",".join(shard["address"] for shard in record["shards"])
    assert ClusterFile.read(tmp_path).addresses == tuple(addresses.split(","))
    table = call("status", "--ps", addresses)
    assert re.match(r"running, linear, async, global step \d+ of 1000000000\n", table.stdout)
    stopped = call("stop", "--log-dir", str(tmp_path))
    assert re.fullmatch(r"stopped at global step \d+\n", stopped.stdout), stopped.stderr
    output, _ = launched.communicate(timeout=DEADLINE)
    assert launched.returncode == 0, output
    assert re.search(r"^done: global step \d+, [0-9.]+ s$", output, re.MULTILINE)
    assert_nothing_is_left(tmp_path)
    after = call("status", "--log-dir", str(tmp_path))
    assert after.returncode == 4
    assert f"the cluster of {tmp_path} has ended with exit code 0" in after.stderr


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -9)])
def test_when_the_launcher_is_ended_nothing_is_left(launched, tmp_path, number, code):
    launched.send_signal(number)
    launched.communicate(timeout=DEADLINE)
    assert launched.returncode == code
    assert_nothing_is_left(tmp_path)


def test_a_killed_worker_ends_all(launched, tmp_path):
    os.kill(ClusterFile.read(tmp_path).workers[1].pid, signal.SIGKILL)
    output, _ = launched.communicate(timeout=DEADLINE)
    assert launched.returncode == 137
    assert output.splitlines()[-1] == f"psctl: error: worker 1 failed with exit code 137; logs: {tmp_path}"
    assert_nothing_is_left(tmp_path)


def test_an_unknown_model_is_refused_before_anything_starts(tmp_path):
    """B09."""
    refused = call("launch", "--model", "mnits", "--log-dir", str(tmp_path / "logs"))
    assert refused.returncode == 2
    assert refused.stderr.startswith("psctl: error: ")
    assert "mnits" in refused.stderr
    assert "did you mean" in refused.stderr
    assert not (tmp_path / "logs").exists()
