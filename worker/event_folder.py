"""One run folder of TensorBoard's, of which there is one writer at a time, and in which steps only rise."""

from __future__ import annotations

import fcntl
import io
import os
import re
import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tensorboard.backend.event_processing.event_file_loader import RawEventFileLoader
from tensorboard.compat.proto.event_pb2 import Event, SessionLog
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.record_writer import RecordWriter

from grpc_ps.client.shared.durable import replacing, write_all

LOCK = "writer.lock"
MAX_PENDING = 10_000
"""Events that are kept while they cannot be written; the oldest go first."""
# As TensorBoard looks for them, which reads a folder's files in the order of their names.
_PREFIX = "events.out.tfevents."
_NAME = re.compile(re.escape(_PREFIX) + r"(?P<stamp>\d+)\..*\.(?P<run>[0-9a-f]{16})\.(?P<generation>[0-9a-f]{16})")
# Bytes of a record beside its data: length and two sums.
_FRAME = 16


class FolderTaken(OSError):
    """Another process writes there."""


@dataclass(frozen=True)
class Timeline:
    """Which job's steps are written: those of a generation, which goes on from step `since` of those before."""

    run: int
    generation: int
    since: int = 0


@dataclass(frozen=True)
class _File:
    """An event file of this project's: when it was begun, and the timeline that it is of."""

    path: Path
    stamp: int
    run: int
    generation: int


class EventFolder:
    """The event file that this process adds to a folder, and the only one that is written there meanwhile.

    TensorBoard follows a folder's newest file alone, so a folder has one writer. The lock in it makes sure of that; the
    kernel lets go of it when a process dies. Each opening begins a new file. What the job has taken back by a rollback
    is cut off the files that are there, and the new file begins with the mark of a restart, by which a TensorBoard that
    has read the old files drops the same: whoever reads sees each step once, and rising. A file that a killed process
    has left with half a record is mended. Files of another run move to `../earlier-RUN/`; foreign files stay.

    Not guarded: one thread uses it.

    Args:
        folder: made if need be.

    Raises:
        FolderTaken: another process writes there.
        OSError: the folder cannot be used.

    Attributes:
        last: the highest step in the folder; -1 if there is none.
    """

    def __init__(self, folder: Path, timeline: Timeline) -> None:
        self.folder = folder
        self.last = -1
        self._pending: list[bytes] = []
        self._lock = _locked(folder)
        try:
            newest = self._tidy(timeline)
            self._file = self._begun(timeline, newest).open("xb", buffering=0)
        except BaseException:
            os.close(self._lock)
            raise
        self._size = 0
        self._head = _record(Event(wall_time=time.time(), file_version="brain.Event:2")) + _record(
            Event(wall_time=time.time(), step=self.last + 1, session_log=SessionLog(status=SessionLog.START))
        )

    def add(self, step: int, summary: Summary, at: float) -> None:
        """Takes the values of a step, and when it was, in seconds since 1970.

        Those of a step that is not above the last one are dropped.
        """
        if step <= self.last:
            return
        self.last = step
        self._pending.append(_record(Event(wall_time=at, step=step, summary=summary)))
        del self._pending[:-MAX_PENDING]

    def flush(self) -> None:
        """Writes what was taken, all or nothing: what cannot be written now is tried again by the next call.

        Raises:
            OSError: as from a disk that is full. The file is as it was before.
        """
        if not self._pending:
            return
        data = (b"" if self._size else self._head) + b"".join(self._pending)
        try:
            write_all(self._file, data)
        except OSError:
            with suppress(OSError):
                self._file.truncate(self._size)
                self._file.seek(self._size)
            raise
        self._size += len(data)
        self._pending.clear()

    def close(self) -> None:
        """Lets go of the folder; what is not written is lost."""
        self._file.close()
        if not self._size:
            with suppress(OSError):
                Path(self._file.name).unlink()
        os.close(self._lock)

    def _tidy(self, timeline: Timeline) -> int:
        """Leaves in the folder what is of this timeline, and finds the last step; returns the newest file's stamp."""
        for leftover in self.folder.glob(f".{_PREFIX}*"):
            leftover.unlink()
        newest = 0
        for file in _files(self.folder):
            newest = max(newest, file.stamp)
            if file.run != timeline.run:
                _move(file.path, self.folder.parent / f"earlier-{file.run:016x}" / self.folder.name)
                continue
            since = None if file.generation == timeline.generation else timeline.since
            self.last = max(self.last, _cut(file.path, since))
        return newest

    def _begun(self, timeline: Timeline, newest: int) -> Path:
        stamp = max(int(time.time()), newest + 1)
        who = f"{socket.gethostname()}.{os.getpid()}"
        return self.folder / f"{_PREFIX}{stamp:010d}.{who}.{timeline.run:016x}.{timeline.generation:016x}"


def _locked(folder: Path) -> int:
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        os.close(descriptor)
        if isinstance(error, BlockingIOError):
            raise FolderTaken(error.errno, "another process writes there") from None
        raise
    return descriptor


def _files(folder: Path) -> Iterator[_File]:
    for path in sorted(folder.glob(f"{_PREFIX}*")):
        if (name := _NAME.fullmatch(path.name)) is not None:
            yield _File(path, int(name["stamp"]), int(name["run"], 16), int(name["generation"], 16))


def _move(path: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path.rename(folder / path.name)


def _cut(path: Path, since: int | None) -> int:
    """Cuts off what is behind step `since`, if that is given, or is no whole record; returns the last step left."""
    size, last = 0, -1
    for record in RawEventFileLoader(str(path)).Load():
        event = Event.FromString(record)
        if since is not None and event.step > since:
            break
        size += _FRAME + len(record)
        if event.HasField("summary"):
            last = max(last, event.step)
    if size < path.stat().st_size:
        # Not in place: who reads the file now must not see its end move.
        data = path.read_bytes()[:size]
        with replacing(path) as file:
            write_all(file, data)
    return last


def _record(event: Event) -> bytes:
    buffer = io.BytesIO()
    RecordWriter(buffer).write(event.SerializeToString())
    return buffer.getvalue()
