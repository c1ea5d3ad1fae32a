"""The owner of a folder of checkpoints: one at a time, and the folder outlives it."""

from __future__ import annotations

import json
import logging
import os
import socket
import subprocess
import sys

import pytest
from checkpoints import RUN, write

from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_lock import read_mark
from grpc_ps.client.shared.errors import CheckpointError


def taken(path, run=RUN):
    folder = CheckpointFolder(path)
    assert folder.take(run) == RUN
    return folder


def test_b75_a_second_owner_is_refused_and_told_whose_it_is(tmp_path):
    first = taken(tmp_path / "ckpt")
    with pytest.raises(CheckpointError) as caught:
        CheckpointFolder(tmp_path / "ckpt").take(7)
    owner = f"job {RUN:016x}, pid {os.getpid()} on {socket.gethostname()} since 2"
    assert str(caught.value).startswith(f"{tmp_path / 'ckpt'}: is in use by {owner}")
    assert str(caught.value).endswith("; end that job, or give another --checkpoint-dir")
    assert caught.value.exit_code == 6
    first.release()


def test_b75_a_released_folder_is_the_same_job_again(tmp_path, caplog):
    first = taken(tmp_path)
    mark = first.mark
    assert read_mark(tmp_path) == mark
    first.release()
    first.release()
    with caplog.at_level(logging.INFO):
        second = taken(tmp_path, run=7)
    assert not [record for record in caplog.records if record.name.startswith("grpc_ps.client.shared")]
    assert read_mark(tmp_path) == second.mark != mark
    second.release()


KILLED = """
import os, signal, sys
from pathlib import Path
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
CheckpointFolder(Path(sys.argv[1])).take(int(sys.argv[2]))
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_b75_a_dead_owners_lock_is_taken_over_and_said(tmp_path, caplog):
    process = subprocess.Popen([sys.executable, "-c", KILLED, tmp_path, str(RUN)])
    assert process.wait(60) == -9
    dead = read_mark(tmp_path)
    with caplog.at_level(logging.WARNING):
        folder = taken(tmp_path, run=7)
    assert f"checkpoint_lock_taken_over file={tmp_path}/lock.json of=" in caplog.text
    assert f"job {RUN:016x}, pid {process.pid} on {socket.gethostname()} since 2" in caplog.text
    assert read_mark(tmp_path) == folder.mark != dead
    folder.release()


@pytest.mark.parametrize("text", ["", "garbage", "[]", '{"run": "x"}', '{"run": "0"}'])
def test_a_lock_file_that_says_nothing_is_nobodys(tmp_path, text):
    (tmp_path / "lock.json").write_text(text)
    assert read_mark(tmp_path) == ""
    folder = taken(tmp_path)
    assert read_mark(tmp_path) == folder.mark
    folder.release()
    record = json.loads((tmp_path / "lock.json").read_text())
    assert (record["run"], record["pid"], record["released"]) == (f"{RUN:016x}", os.getpid(), True)


def test_there_is_no_mark_where_no_lead_has_been(tmp_path):
    assert read_mark(tmp_path / "none") == ""
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"file/lock.json: cannot be read: Not a directory"):
        read_mark(tmp_path / "file")


def test_b79_a_folder_that_cannot_be_used_is_refused_at_the_start(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(CheckpointError, match=r"file: cannot be used for checkpoints: File exists"):
        taken(tmp_path / "file")
    with pytest.raises(CheckpointError, match=r"file/below: cannot be used for checkpoints: Not a directory"):
        taken(tmp_path / "file" / "below")
    with pytest.raises(CheckpointError, match=r"/proc/checkpoints: cannot be used for checkpoints: No such file"):
        taken(type(tmp_path)("/proc/checkpoints"))


def test_b79_a_folder_that_may_not_be_written_is_refused_at_the_start(tmp_path):
    tmp_path.chmod(0o500)
    if os.access(tmp_path, os.W_OK):
        pytest.skip("this user writes everywhere")
    with pytest.raises(CheckpointError, match=r"cannot be used for checkpoints: Permission denied"):
        taken(tmp_path)


def test_a_lock_file_that_was_removed_is_made_anew(tmp_path):
    folder = taken(tmp_path)
    (tmp_path / "lock.json").unlink()
    write(folder)
    assert read_mark(tmp_path) == folder.mark
    with pytest.raises(CheckpointError, match="is in use by job"):
        CheckpointFolder(tmp_path).take(7)
    folder.release()


def test_b75_a_folder_that_became_another_jobs_is_not_written_to(tmp_path):
    folder = taken(tmp_path)
    (tmp_path / "lock.json").unlink()
    other = CheckpointFolder(tmp_path)
    assert other.take(7) == 7
    with pytest.raises(CheckpointError, match=r"is in use by job 0000000000000007"):
        write(folder)
    other.release()
    with pytest.raises(CheckpointError, match=r"lock.json: the folder is job 0000000000000007's now"):
        write(folder)
    assert folder.steps() == []
    folder.release()
