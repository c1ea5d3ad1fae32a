"""Whose folder of checkpoints it is: `lock.json`, locked by the lead for as long as it lives."""

from __future__ import annotations

import fcntl
import json
import logging
import os
import secrets
import socket
from collections.abc import Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from grpc_ps.client.shared.durable import reporting, sync_folder
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.logs import event

_LOGGER = logging.getLogger("grpc_ps.checkpoint")

LOCK = "lock.json"
# The text is padded to this length and written at once: a process that is killed leaves the old text or the new one.
_BYTES = 1024


class FolderLock:
    """Holds the lock of a folder; the kernel lets go of it when the process dies, however it dies.

    Not guarded: one thread at a time.

    Args:
        folder: is made if need be.
        run: the job's id, if the folder is nobody's yet.

    Raises:
        CheckpointError: another live process has it, or the folder cannot be used.

    Attributes:
        run: the job's id: the folder keeps it for the next lead.
        mark: random, of this process's time as the owner; `read_mark` gives it to the other shards.
    """

    def __init__(self, folder: Path, run: int) -> None:
        self._path = folder / LOCK
        self.mark = secrets.token_hex(8)
        self.run = run
        with reporting(folder, "used for checkpoints"):
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = self._open()
            try:
                self._take_over()
                sync_folder(folder)
            except BaseException:
                os.close(self._descriptor)
                raise

    def check(self) -> None:
        """Makes sure that the folder is still ours; takes a lock file that somebody removed anew.

        Raises:
            CheckpointError: the folder is another job's now.
        """
        with reporting(self._path, "locked"):
            try:
                if os.path.samestat(os.stat(self._path), os.fstat(self._descriptor)):
                    return
            except FileNotFoundError:
                pass
            found = self._open()
            other = _read(found).get("run")
            if other not in (None, f"{self.run:016x}"):
                os.close(found)
                raise CheckpointError(f"{self._path}: the folder is job {other}'s now")
            os.close(self._descriptor)
            self._descriptor = found
            self._write(released=False)

    def release(self) -> None:
        """Gives the folder back; more than once is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor < 0:
            return
        with reporting(self._path, "released"):
            try:
                self._write(released=True, descriptor=descriptor)
            finally:
                os.close(descriptor)

    def _open(self) -> int:
        descriptor = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            owner = _owner(_read(descriptor))
            os.close(descriptor)
            raise CheckpointError(
                f"{self._path.parent}: is in use by {owner}; end that job, or give another --checkpoint-dir"
            ) from None
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _take_over(self) -> None:
        before = _read(self._descriptor)
        run = _run_of(before)
        if run is not None:
            self.run = run
        if before and not before.get("released"):
            event(_LOGGER, "checkpoint_lock_taken_over", logging.WARNING, file=self._path, of=_owner(before))
        self._write(released=False)

    def _write(self, *, released: bool, descriptor: int | None = None) -> None:
        record = {
            "run": f"{self.run:016x}",
            "mark": self.mark,
            "host": socket.gethostname(),
            "pid": os.getpid(),
            "started": datetime.now(timezone.utc).isoformat(timespec="seconds"),
            "released": released,
        }
        target = self._descriptor if descriptor is None else descriptor
        os.pwrite(target, f"{json.dumps(record):{_BYTES - 1}}\n".encode(), 0)
        os.fsync(target)


def read_mark(folder: Path) -> str:
    """Returns the mark of the lead that has a folder of checkpoints; nothing where no lead has been.

    It is the dead one's until the next lead has started, so read it anew for each attempt to reach the lead.

    Raises:
        CheckpointError: it cannot be read.
    """
    try:
        with reporting(folder / LOCK, "read"):
            descriptor = os.open(folder / LOCK, os.O_RDONLY | os.O_CLOEXEC)
    except CheckpointError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return ""
        raise
    try:
        return str(_read(descriptor).get("mark", ""))
    finally:
        os.close(descriptor)


def _read(descriptor: int) -> Mapping[str, Any]:
    try:
        record = json.loads(os.pread(descriptor, 2 * _BYTES, 0))
    except ValueError:
        return {}
    return record if isinstance(record, dict) else {}


def _run_of(record: Mapping[str, Any]) -> int | None:
    try:
        run = int(str(record.get("run")), 16)
    except ValueError:
        return None
    return run if 0 < run < 1 << 64 else None


def _owner(record: Mapping[str, Any]) -> str:
    if not record:
        return "another process"
    known = [f"job {record.get('run')}", f"pid {record.get('pid')} on {record.get('host')}"]
    return f"{', '.join(known)} since {record.get('started')}"
