"""One run folder: one writer, each step once, whatever was killed, rolled back or full."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from event_files import accumulator, check_whole, files, recorded, shown, values
from shard_log import ShardLog
from tensorboard.backend.event_processing.event_file_loader import EventFileLoader

from grpc_ps.worker import event_folder
from grpc_ps.worker.event_folder import MAX_PENDING, EventFolder, FolderTaken, Timeline
from grpc_ps.worker.figures import summary
from grpc_ps.worker.run_folder import RunFolder

FIRST = Timeline(run=7, generation=1)
BACK_TO_5 = Timeline(run=7, generation=2, since=5)


def write(folder: EventFolder, *steps: int) -> None:
    for step in steps:
        folder.add(step, summary({"loss": float(step)}, {}), 1e9 + step)
    folder.flush()


def written(path: Path, timeline: Timeline, *steps: int) -> None:
    """What a process writes from its start to its end."""
    folder = EventFolder(path, timeline)
    write(folder, *steps)
    folder.close()


def killed(path: Path, timeline: Timeline, *steps: int) -> None:
    """The same of a process that is killed in the middle of a record."""
    written(path, timeline, *steps)
    newest = files(path)[-1]
    whole = newest.read_bytes()
    newest.write_bytes(whole + whole[-40:-10])


def test_what_is_written_is_read_back(tmp_path: Path) -> None:
    written(tmp_path, FIRST, 1, 2, 300)
    assert values(tmp_path, "loss") == {1: 1.0, 2: 2.0, 300: 300.0}
    assert check_whole(tmp_path) == {".": {"loss": [1, 2, 300]}}


def test_a_step_that_is_not_above_the_last_is_dropped(tmp_path: Path) -> None:
    written(tmp_path, FIRST, 3, 3, 2, 4)
    assert recorded(tmp_path) == {"loss": [3, 4]}


def test_a_killed_process_goes_on_in_a_file_of_its_own(tmp_path: Path) -> None:
    killed(tmp_path, FIRST, 1, 2, 3)
    folder = EventFolder(tmp_path, FIRST)
    assert folder.last == 3
    write(folder, 2, 3, 4)
    folder.close()
    assert len(files(tmp_path)) == 2
    assert check_whole(tmp_path) == {".": {"loss": [1, 2, 3, 4]}}


def test_what_was_rolled_back_is_gone_also_for_who_has_read_it(tmp_path: Path) -> None:
    killed(tmp_path, FIRST, 1, 3)
    killed(tmp_path, FIRST, 5, 7, 9)
    open_before = accumulator(tmp_path)
    assert shown(open_before) == {"loss": [1, 3, 5, 7, 9]}
    written(tmp_path, BACK_TO_5, 6, 8)
    assert check_whole(tmp_path) == {".": {"loss": [1, 3, 5, 6, 8]}}
    assert shown(open_before) == {"loss": [1, 3, 5, 6, 8]}
    # Another process of the same generation takes nothing back.
    written(tmp_path, BACK_TO_5, 9)
    assert check_whole(tmp_path) == {".": {"loss": [1, 3, 5, 6, 8, 9]}}


def test_a_job_that_begins_anew_keeps_nothing_of_itself(tmp_path: Path) -> None:
    written(tmp_path, FIRST, 1, 2)
    written(tmp_path, Timeline(run=7, generation=2), 1)
    assert check_whole(tmp_path) == {".": {"loss": [1]}}


def test_another_jobs_files_move_aside_and_foreign_ones_stay(tmp_path: Path) -> None:
    path = tmp_path / "worker-0"
    written(path, Timeline(run=8, generation=1), 10, 20)
    path.joinpath("events.out.tfevents.1.foreign").write_bytes(b"")
    written(path, FIRST, 1)
    assert check_whole(tmp_path) == {
        f"earlier-{8:016x}/worker-0": {"loss": [10, 20]},
        "worker-0": {"loss": [1]},
    }
    assert (path / "events.out.tfevents.1.foreign").exists()


def test_files_are_read_in_the_order_of_writing_however_fast_they_follow(tmp_path: Path) -> None:
    for step in range(1, 5):
        written(tmp_path, FIRST, step)
    assert recorded(tmp_path) == {"loss": [1, 2, 3, 4]}


def test_b92_a_folder_has_one_writer_at_a_time(tmp_path: Path) -> None:
    """Fault B92."""
    first = EventFolder(tmp_path, FIRST)
    with pytest.raises(FolderTaken, match="another process writes there"):
        EventFolder(tmp_path, FIRST)
    first.close()
    EventFolder(tmp_path, FIRST).close()
    # Whoever wrote nothing leaves nothing for a reader.
    assert files(tmp_path) == []


class Disk:
    """Takes only so many bytes of each file's next writing."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.room: int | None = None
        self._write = event_folder.write_all
        monkeypatch.setattr(event_folder, "write_all", self.write)

    def write(self, file: Any, data: bytes) -> None:
        if self.room is not None:
            self._write(file, data[: self.room])
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self._write(file, data)


@pytest.mark.parametrize("room", [0, 5, 100, 200])
def test_b92_a_full_disk_costs_a_warning_and_no_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, log: ShardLog, room: int
) -> None:
    """Fault B92: also with half a record written, which must not stay in the middle of the file."""
    disk = Disk(monkeypatch)
    folder = RunFolder(tmp_path)
    folder.open(FIRST)
    for step in range(1, 9):
        disk.room = None if step in (1, 6, 8) else room
        folder.add(step, summary({"loss": float(step)}, {}), 1e9 + step)
        folder.flush()
        if step in (1, 5):
            assert recorded(tmp_path) == {"loss": [1]}
    folder.close()
    assert check_whole(tmp_path) == {".": {"loss": [1, 2, 3, 4, 5, 6, 7, 8]}}
    # Twice full, so twice told.
    why = "No space left on device; it is tried again"
    assert log.of("summaries_not_written") == [f'summaries_not_written folder={tmp_path} why="{why}"'] * 2


def test_what_cannot_be_written_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(monkeypatch)
    disk.room = 0
    folder = EventFolder(tmp_path, FIRST)
    for step in range(MAX_PENDING + 10):
        folder.add(step, summary({}, {}), 1e9 + step)
    with pytest.raises(OSError, match="No space left"):
        folder.flush()
    disk.room = None
    folder.add(MAX_PENDING + 10, summary({"loss": 0.0}, {}), 1e9)
    folder.flush()
    folder.close()
    assert recorded(tmp_path) == {"loss": [MAX_PENDING + 10]}
    events = [event.step for event in EventFileLoader(str(files(tmp_path)[0])).Load() if event.HasField("summary")]
    assert events == list(range(11, MAX_PENDING + 11))


def test_a_folder_that_cannot_be_had_yet_is_written_later(tmp_path: Path, log: ShardLog) -> None:
    """As where the process that held the lease before has not noticed yet: no reason to warn."""
    taken = EventFolder(tmp_path / "job", FIRST)
    folder = RunFolder(tmp_path / "job")
    folder.open(FIRST)
    folder.add(1, summary({"loss": 1.0}, {}), 1e9)
    for _ in range(5):
        folder.flush()
    taken.close()
    folder.flush()
    folder.close()
    assert recorded(tmp_path / "job") == {"loss": [1]}
    assert log.of("summaries_not_written") == []


def test_a_folder_that_stays_taken_is_told_once(tmp_path: Path, log: ShardLog) -> None:
    taken = EventFolder(tmp_path, FIRST)
    folder = RunFolder(tmp_path)
    folder.open(FIRST)
    folder.add(1, summary({"loss": 1.0}, {}), 1e9)
    for _ in range(100):
        folder.flush()
    taken.close()
    why = "another process writes there; it is tried again"
    assert log.of("summaries_not_written") == [f'summaries_not_written folder={tmp_path} why="{why}"']
