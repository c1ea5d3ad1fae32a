"""--fault on the command lines: of the processes that meet the faults, and of `psctl launch`, which hands them out."""

from __future__ import annotations

import click
import pytest
from worker_command import config_of as worker_config

from grpc_ps.client.commands.launch import launch
from grpc_ps.client.shared.errors import PsError
from grpc_ps.client.shared.fault_flags import SentFault, faults_for
from grpc_ps.client.shared.faults import Fault, FaultPlan
from grpc_ps.psserver.command import config_from_flags, psserver
from grpc_ps.psserver.config import ShardConfig


def shard_config(*typed: str) -> ShardConfig:
    return config_from_flags(psserver.make_context("psserver", ["--shard", "0", "--port", "0", *typed]).params)


def test_a_shards_faults() -> None:
    config = shard_config("--fault", "kill@part.write:3", "--fault", "delay:Follow=0.5@0.1", "--fault-seed", "7")
    assert config.faults == FaultPlan(
        faults=(
            Fault(kind="kill", where="part.write", passing=3),
            Fault(kind="delay", where="Follow", seconds=0.5, probability=0.1),
        ),
        seed=7,
    )
    assert shard_config().faults == FaultPlan()


def test_a_workers_faults() -> None:
    config = worker_config("--ps", "a:1", "--model", "linear", "--fault", "kill@sent:2", "--fault", "drop:Join@0.5")
    assert [str(fault) for fault in config.faults.faults] == ["kill@sent:2", "drop:Join@0.5"]


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("kill@applied", "--fault kill@applied: unknown point applied; known are computed, sent, answered"),
        ("drop:Follow", "--fault drop:Follow: unknown call Follow; known are Join, Heartbeat, "),
        ("cut:PushPul", "--fault cut:PushPul: unknown call PushPul (did you mean PushPull?)"),
    ],
)
def test_b09_a_worker_has_no_such_fault(fault: str, says: str) -> None:
    with pytest.raises((click.UsageError, PsError)) as caught:
        worker_config("--ps", "a:1", "--model", "linear", "--fault", fault)
    error = caught.value
    assert isinstance(error, click.UsageError)
    assert error.format_message().startswith(says)


def sent(text: str) -> tuple[str, str]:
    return SentFault().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "who", "fault"),
    [
        ("ps: drop:Join", "ps", "drop:Join"),
        ("ps 1: kill@applied:50", "ps 1", "kill@applied:50"),
        (" worker  02 :delay:PushPull=1@0.5", "worker 2", "delay:PushPull=1.0@0.5"),
        ("workers: kill@sent", "worker", "kill@sent"),
    ],
)
def test_whom_a_fault_is_for(text: str, who: str, fault: str) -> None:
    assert sent(text) == (who, fault)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("drop:Join", "value drop:Join: must be 'WHO: SPEC', where WHO is ps, ps 0, workers or worker 1"),
        ("shard 1: drop:Join", "value shard 1: drop:Join: must be 'WHO: SPEC'"),
        ("ps 1: kill@sent", "value ps 1: kill@sent: unknown point sent"),
        ("worker: drop:Follow", "value worker: drop:Follow: unknown call Follow"),
    ],
)
def test_b09_a_fault_for_nobody(text: str, says: str) -> None:
    with pytest.raises(click.UsageError) as caught:
        sent(text)
    assert caught.value.format_message().startswith(says)


def test_each_process_gets_its_own_faults() -> None:
    faults = [sent(text) for text in ("ps: drop:Join@0.5", "ps 1: kill@applied", "workers: kill@sent")]
    seed = ["--fault-seed", "3"]
    assert faults_for("ps 0", faults, 3) == ["--fault", "drop:Join@0.5", *seed]
    assert faults_for("ps 1", faults, 3) == ["--fault", "drop:Join@0.5", "--fault", "kill@applied", *seed]
    assert faults_for("worker 11", faults, 3) == ["--fault", "kill@sent", *seed]
    assert faults_for("worker 1", faults[:2], 3) == []
    assert faults_for("worker 11", [sent("worker 1: kill@sent")], 3) == []


def test_b09_a_fault_for_a_process_that_is_not_started() -> None:
    typed = ["--ps", "2", "--workers", "1", "--model", "linear", "--fault", "worker 1: kill@sent"]
    context = launch.make_context("launch", typed)
    with pytest.raises(click.UsageError) as caught, context:
        launch.invoke(context)
    assert caught.value.format_message() == "--fault: there is no worker 1: there are ps 0, ps 1, worker 0"
