"""psctl checkpoint, and what psctl status and watch show of checkpoints."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import click
import pytest
from fake_control import FakeControl, status

from grpc_ps.client.client import PSClient, Saved
from grpc_ps.client.cluster_file import ClusterFile, Process
from grpc_ps.client.commands import tables
from grpc_ps.client.commands.group import run
from grpc_ps.client.shared.errors import CheckpointError, JobFailed
from grpc_ps.client.status import CheckpointStatus, cluster_status
from grpc_ps.protos import control_pb2 as wire

SAVED = wire.CheckpointResponse(global_step=40, path="ckpt/step-00000040")
STOPPED = wire.StatusResponse.PHASE_STOPPED
RESTORING = wire.StatusResponse.PHASE_RESTORING


def test_checkpoint_says_where(capsys: pytest.CaptureFixture[str]) -> None:
    with FakeControl() as lead:
        lead.saved = SAVED
        assert run(["checkpoint", "--ps", lead.address]) == 0
        assert capsys.readouterr().out == "checkpoint step=40 path=ckpt/step-00000040\n"
        assert run(["checkpoint", "--ps", lead.address, "--timeout", "7", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"global_step": 40, "path": "ckpt/step-00000040"}
    assert lead.waits == [600_000, 7000]


def test_a_refused_checkpoint_is_exit_code_6() -> None:
    with FakeControl() as lead:
        lead.saved = CheckpointError("the shards have no --checkpoint-dir")
        with pytest.raises(CheckpointError, match=r"^the shards have no --checkpoint-dir$") as refused:
            run(["checkpoint", "--ps", lead.address])
    assert refused.value.exit_code == 6


@pytest.mark.parametrize("value", ["0", "601", "x"])
def test_b08_the_timeout_is_what_the_lead_allows(value: str) -> None:
    with pytest.raises(click.UsageError, match=f"^--timeout {value}: must be .*1 to 600"):
        run(["checkpoint", "--ps", "a:1", "--timeout", value])


def test_the_client_saves_and_waits_no_longer_than_the_lead_does() -> None:
    with FakeControl() as lead:
        lead.saved = SAVED
        with PSClient(lead.address) as client:
            assert client.checkpoint(10_000) == Saved(global_step=40, path="ckpt/step-00000040")
            client.checkpoint(0.25)
    assert lead.waits == [600_000, 250]


def shown(**fields: Any) -> str:
    rollbacks = fields.pop("rollbacks", 0)
    saved = wire.CheckpointStatus(directory="ckpt", **fields)
    return tables.checkpoint(cluster_status(status(checkpoint=saved, rollbacks=rollbacks)))


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({}, "checkpoint: none yet, in ckpt"),
        ({"global_step": 0, "age_ms": 400}, "checkpoint: step 0, 0 s ago, in ckpt"),
        ({"global_step": 40, "age_ms": 3100}, "checkpoint: step 40, 3 s ago, in ckpt"),
        ({"global_step": 40, "age_ms": 600_000}, "checkpoint: step 40, 10 min ago, in ckpt"),
        ({"global_step": 40, "saving": True}, "checkpoint: step 40, 0 s ago, in ckpt, saving"),
        (
            {"global_step": 40, "error": "ckpt/x:\nNo space left on device"},
            "checkpoint: step 40, 0 s ago, in ckpt, last attempt failed: ckpt/x: No space left on device",
        ),
        ({"restored_step": 0}, "checkpoint: none yet, in ckpt, resumed from step 0"),
        ({"restored_step": 30, "rollbacks": 1}, "checkpoint: none yet, in ckpt, resumed from step 30, 1 rollback"),
        ({"rollbacks": 2}, "checkpoint: none yet, in ckpt, 2 rollbacks"),
    ],
)
def test_checkpoints_in_one_line(fields: dict[str, Any], line: str) -> None:
    assert shown(**fields) == line


def test_status_shows_checkpoints(capsys: pytest.CaptureFixture[str]) -> None:
    saved = wire.CheckpointStatus(directory="ckpt", global_step=20, age_ms=3000)
    with FakeControl(status(checkpoint=saved, phase=RESTORING, rollbacks=1)) as lead:
        assert run(["status", "--ps", lead.address]) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[0].startswith("restoring, mnist, async, global step 30")
        assert lines[2] == "checkpoint: step 20, 3 s ago, in ckpt, 1 rollback"
        assert run(["status", "--ps", lead.address, "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert (record["phase"], record["rollbacks"]) == ("restoring", 1)
    assert record["checkpoint"] == {
        "directory": "ckpt",
        "global_step": 20,
        "age_ms": 3000,
        "saving": False,
        "error": "",
        "restored_step": None,
    }


def test_without_a_folder_nothing_is_said_of_checkpoints() -> None:
    now = cluster_status(status())
    assert now.checkpoint is None
    assert tables.checkpoint(now) == ""
    assert now.to_dict()["checkpoint"] is None


def test_step_0_is_a_step() -> None:
    found = cluster_status(status(checkpoint=wire.CheckpointStatus(global_step=0, restored_step=0))).checkpoint
    assert found == CheckpointStatus(directory="", global_step=0, restored_step=0)


def test_watch_shows_checkpoints_in_its_lines(capsys: pytest.CaptureFixture[str]) -> None:
    saved = wire.CheckpointStatus(directory="ckpt", global_step=20, error="disk full", restored_step=10)
    with FakeControl(status(checkpoint=saved), then_gone=True) as lead:
        assert run(["watch", "--ps", lead.address, "--interval", "0.001"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert line.endswith("late 2, checkpoint step 20, last attempt failed: disk full, resumed from step 10")


def write_cluster(lead: FakeControl, exit_code: int | None = None) -> None:
    shard = Process(name="ps 0", pid=1, address=lead.address)
    ClusterFile(launcher=os.getpid(), shards=(shard,), exit_code=exit_code).write(Path())


def test_watch_waits_for_a_lead_that_the_launcher_may_start_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    readings = [status(step) for step in (10, 11, 12, 13)]
    with FakeControl(*readings, status(30, phase=STOPPED), gone={1, 2}) as lead:
        write_cluster(lead)
        assert run(["watch", "--interval", "0.001", "--json"]) == 0
    steps = [json.loads(line)["global_step"] for line in capsys.readouterr().out.splitlines()]
    assert steps == [10, 13, 30]


@pytest.mark.parametrize("code", [0, 4])
def test_watch_of_a_launch_whose_lead_has_not_said_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    monkeypatch.chdir(tmp_path)

    class Ending(FakeControl):
        def Status(self, request: wire.StatusRequest, context: Any) -> wire.StatusResponse:
            if self._asked == 3:
                write_cluster(self, exit_code=code)
            return super().Status(request, context)

    with Ending(status(10), then_gone=True) as lead:
        write_cluster(lead)
        command = ["watch", "--interval", "0.001"]
        if code:
            with pytest.raises(JobFailed, match=r"^the cluster of \. has ended with exit code 4; ") as failed:
                run(command)
            assert failed.value.exit_code == 4
        else:
            assert run(command) == 0
