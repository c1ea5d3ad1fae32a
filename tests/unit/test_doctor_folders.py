"""What `psctl doctor` finds of a folder of checkpoints."""

from __future__ import annotations

import json
import os
import socket
import threading
from pathlib import Path

import pytest
from checkpoints import write

from grpc_ps.client.doctor import folder
from grpc_ps.client.doctor.check import Check
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_lock import LOCK

SECONDS = 10.0


def found(check: Check) -> tuple[str, str]:
    return check.state, check.text


def test_a_folder_that_is_not_there_yet(tmp_path: Path) -> None:
    [check] = folder.check_folder(tmp_path / "a" / "b", SECONDS)
    assert check.state == "ok"
    assert check.text.startswith(f"{tmp_path / 'a' / 'b'}: will be made in {tmp_path}; written and synced in ")
    assert not [*tmp_path.iterdir()]


def test_a_folder_that_is_none(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    [check] = folder.check_folder(tmp_path / "file", SECONDS)
    assert (*found(check), check.exit_code) == (
        "fail",
        f"{tmp_path / 'file'}: is no folder; give another --checkpoint-dir",
        6,
    )


def test_a_folder_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, os.strerror(28))

    monkeypatch.setattr(os, "fsync", full)
    [check] = folder.check_folder(tmp_path, SECONDS)
    assert (*found(check), check.exit_code) == (
        "fail",
        f"{tmp_path}: {tmp_path} cannot be written: No space left on device; mend it or give another",
        6,
    )
    assert not [*tmp_path.iterdir()]


def texts(path: Path) -> list[tuple[str, str]]:
    """What is found of a folder beside whether it can be written."""
    written, *others = folder.check_folder(path, SECONDS)
    assert written.state == "ok"
    return [(check.state, check.text.removeprefix(f"{path}: ")) for check in others]


def test_an_empty_folder(tmp_path: Path) -> None:
    room, *others = texts(tmp_path)
    assert room[1].endswith("GiB free")
    assert others == [("ok", "no job has it"), ("ok", "no checkpoints; a job would start at step 0")]


def test_a_folder_with_checkpoints(tmp_path: Path) -> None:
    for step in (40, 50):
        write(CheckpointFolder(tmp_path), step)
    assert texts(tmp_path)[2] == ("ok", "the newest is whole; a job would go on at step 50")
    part = tmp_path / "step-00000050" / "shard-00001-of-00002.safetensors"
    part.write_bytes(part.read_bytes()[:-1])
    state, text = texts(tmp_path)[2]
    assert (state, text.startswith("a job would go on at step 40; damaged: ")) == ("warn", True)
    assert "step-00000050/shard-00001-of-00002.safetensors" in text
    (tmp_path / "step-00000040" / "manifest.json").unlink()
    check = folder.check_folder(tmp_path, SECONDS)[3]
    assert (check.state, check.exit_code) == ("fail", 6)
    assert check.text.startswith(f"{tmp_path}: none of its checkpoints is whole: ")


def test_little_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Usage:
        free = 100 << 20

    monkeypatch.setattr(folder.shutil, "disk_usage", lambda path: Usage)
    assert texts(tmp_path)[0] == (
        "warn",
        "100.0 MiB free, and 1.0 GiB would be safe: make room, or lower --keep",
    )


def test_a_folder_that_a_job_has_had_or_may_have(tmp_path: Path) -> None:
    owner = CheckpointFolder(tmp_path)
    run = f"{owner.take(0xABC):016x}"
    state, text = texts(tmp_path)[1]
    assert (state, text.startswith(f"job {run}, pid {os.getpid()} on {socket.gethostname()} since ")) == ("warn", True)
    assert text.endswith(" has it; a second job is refused")
    owner.release()
    assert texts(tmp_path)[1] == ("ok", "no job has it")
    record = {"run": run, "pid": os.getpid(), "host": "elsewhere", "started": "then", "released": False}
    (tmp_path / LOCK).write_text(json.dumps(record))
    assert texts(tmp_path)[1] == (
        "warn",
        f"job {run}, pid {os.getpid()} on elsewhere since then has it, if that still runs; a second job is refused"
        " then",
    )
    (tmp_path / LOCK).write_text(json.dumps({**record, "host": socket.gethostname(), "pid": 2**22 + 5}))
    assert texts(tmp_path)[1][1].endswith(" had it and is gone; the next job goes on with it")
    (tmp_path / LOCK).write_text("no json")
    assert texts(tmp_path)[1][0] == "warn"


def test_a_slow_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(CheckpointFolder, "newest", lambda *_: release.wait(SECONDS))
    assert found(folder.check_newest(tmp_path, 0.01)) == (
        "warn",
        f"{tmp_path}: reading the newest takes more than 0.01 s; psctl inspect {tmp_path} has the time",
    )
    monkeypatch.setattr(folder, "_check", lambda *_: release.wait(SECONDS))
    [check] = folder.check_folder(tmp_path, 0.01)
    assert found(check) == ("fail", f"{tmp_path}: no answer within 0.04 s: is it on a file server that is away?")
    release.set()
