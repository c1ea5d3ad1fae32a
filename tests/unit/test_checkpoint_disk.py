"""A disk that is full at any point of saving: nothing that is there suffers, and the next save goes well."""

from __future__ import annotations

import errno
import os
import resource
from pathlib import Path

import numpy as np
import pytest
from checkpoints import write

from grpc_ps.client.shared.checkpoint import verify
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_format import At, Piece, nowhere, part_name
from grpc_ps.client.shared.checkpoint_part import write_part
from grpc_ps.client.shared.durable import write_all
from grpc_ps.client.shared.errors import CheckpointError

PARTS = [part_name(shard, 2) for shard in range(2)]
# Of a commit's points the last are behind the rename.
VISIBLE = ("commit.done", "prune")


def test_b79_the_disk_is_full_at_any_point(tmp_path):
    points: list[str] = []
    save(tmp_path / "all", at=points.append)
    assert len(set(points)) == 12
    for index, point in enumerate(points):
        fails_at(tmp_path / str(index), index, point)


def save(path: Path, step: int = 40, at: At = nowhere) -> None:
    """Saves a step beside step 20, and keeps it alone."""
    path.mkdir(exist_ok=True)
    folder = CheckpointFolder(path, at)
    if not folder.steps():
        write(CheckpointFolder(path), 20)
    write(folder, step, at=at, token=f"{step:02x}")
    folder.prune(1, step)


def fails_at(path: Path, index: int, point: str) -> None:
    """The disk is full once, at that point: step 20 is as it was, and step 40 there or not; the next save goes well."""
    passed: list[str] = []

    def at(name: str) -> None:
        passed.append(name)
        if len(passed) == index + 1:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with pytest.raises(
        CheckpointError, match=r": cannot be (written|committed|removed): No space left on device"
    ) as caught:
        save(path, at=at)
    folder = CheckpointFolder(path)
    assert caught.value.exit_code == 6
    assert passed[-1] == point
    assert folder.steps() == ([20, 40] if point in VISIBLE else [20])
    assert [verify(folder.step_path(step)) for step in folder.steps()] == [[]] * len(folder.steps())
    if point.startswith(("part.", "manifest.")):
        # What was written under another name is removed at once: the disk is full.
        left = [file.name for file in path.rglob("*") if file.is_file() and ".saving" in str(file)]
        assert all(name in PARTS for name in left)
    save(path, 60)
    assert sorted(file.name for file in path.iterdir()) == ["step-00000060"]
    assert verify(path / "step-00000060") == []


def test_b79_what_the_system_takes_in_bits_is_written_whole(tmp_path):
    class Slow:
        """Takes three bytes at once."""

        taken = b""

        def write(self, data: memoryview) -> int:
            self.taken += bytes(data[:3])
            return min(3, len(data))

    file = Slow()
    write_all(file, b"0123456789")
    assert file.taken == b"0123456789"


def test_b79_a_file_that_grows_too_large_for_the_disk(tmp_path):
    """The kernel refuses in the middle of a write, having taken a part of it."""
    data = np.zeros(9 << 20, np.uint8)
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (5 << 20, limits[1]))
    try:
        with pytest.raises(CheckpointError, match=r"s/file: cannot be written: File too large"):
            write_part(tmp_path / "s", "file", [(Piece("p", "", 0, data.size, "bool"), data.data)], {})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert not list((tmp_path / "s").iterdir())
