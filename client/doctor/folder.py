"""Whether a folder can take a job's checkpoints, and what is in it."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpc_ps.client.doctor.check import CHECKPOINT, Check, fail, ok, warn, within
from grpc_ps.client.shared.checkpoint import looks_whole
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_lock import LOCK
from grpc_ps.client.shared.errors import CheckpointError

NAME = "checkpoints"
# Less room than this is worth a word whatever the model's size.
LEAST_FREE = 1 << 30


def check_folder(path: Path, seconds: float) -> list[Check]:
    """Looks at the folder of --checkpoint-dir, and makes none: where there is none yet, at where it will be made."""
    try:
        return within(4 * seconds, lambda: _check(path, seconds))
    except TimeoutError:
        text = f"{path}: no answer within {4 * seconds:g} s: is it on a file server that is away?"
        return [fail(NAME, text, CHECKPOINT)]


def _check(path: Path, seconds: float) -> list[Check]:
    if path.exists() and not path.is_dir():
        return [fail(NAME, f"{path}: is no folder; give another --checkpoint-dir", CHECKPOINT)]
    place = path
    while not place.exists():
        place = place.parent
    writable = check_writable(place, for_what=path)
    if writable.state == "fail" or place != path:
        return [writable]
    return [writable, check_room(path), check_owner(path), check_newest(path, seconds)]


def check_writable(place: Path, for_what: Path) -> Check:
    """Writes a small file, and has it written through to the disk."""
    probe = place / f".doctor-{secrets.token_hex(4)}"
    begin = time.monotonic()
    try:
        with open(probe, "xb", buffering=0) as file:
            file.write(b"grpc-ps")
            os.fsync(file.fileno())
    except OSError as error:
        return fail(
            NAME, f"{for_what}: {place} cannot be written: {error.strerror}; mend it or give another", CHECKPOINT
        )
    finally:
        with suppress(OSError):
            probe.unlink()
    text = f"written and synced in {1000 * (time.monotonic() - begin):.0f} ms"
    return ok(NAME, f"{for_what}: {text}" if place == for_what else f"{for_what}: will be made in {place}; {text}")


def check_room(path: Path) -> Check:
    """Compares the free space with the largest checkpoint there: two more must fit, for the old one goes last."""
    free = shutil.disk_usage(path).free
    sizes = [_size(step) for step in path.glob("step-*") if looks_whole(step)]
    needed = max(LEAST_FREE, 2 * max(sizes, default=0))
    text = f"{path}: {_bytes(free)} free"
    if free < needed:
        return warn(NAME, f"{text}, and {_bytes(needed)} would be safe: make room, or lower --keep")
    return ok(NAME, text)


def _size(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _bytes(count: int) -> str:
    return f"{count / (1 << 30):.1f} GiB" if count >= 1 << 30 else f"{count / (1 << 20):.1f} MiB"


def check_owner(path: Path) -> Check:
    """Says which job has the folder. The lock itself is not tried: a lead that starts just then would be refused."""
    try:
        record: Any = json.loads((path / LOCK).read_bytes())
    except FileNotFoundError:
        return ok(NAME, f"{path}: no job has it")
    except (OSError, ValueError) as error:
        return warn(NAME, f"{path / LOCK}: cannot be read: {error}")
    if not isinstance(record, dict) or record.get("released"):
        return ok(NAME, f"{path}: no job has it")
    owner = f"job {record.get('run')}, pid {record.get('pid')} on {record.get('host')} since {record.get('started')}"
    if record.get("host") != socket.gethostname():
        return warn(NAME, f"{path}: {owner} has it, if that still runs; a second job is refused then")
    if _runs(record.get("pid")):
        return warn(NAME, f"{path}: {owner} has it; a second job is refused")
    return ok(NAME, f"{path}: {owner} had it and is gone; the next job goes on with it")


def _runs(pid: Any) -> bool:
    try:
        os.kill(int(pid), 0)
    except PermissionError:
        return True
    except (OSError, TypeError, ValueError):
        return False
    return True


def check_newest(path: Path, seconds: float) -> Check:
    """Reads checkpoints from the newest on until one is whole, as a restart does."""
    skipped: list[str] = []
    try:
        newest = within(seconds, lambda: CheckpointFolder(path).newest(skipped.append))
    except TimeoutError:
        return warn(
            NAME, f"{path}: reading the newest takes more than {seconds:g} s; psctl inspect {path} has the time"
        )
    except CheckpointError as error:
        return fail(NAME, str(error), CHECKPOINT)
    if newest is None:
        return ok(NAME, f"{path}: no checkpoints; a job would start at step 0")
    if skipped:
        return warn(NAME, f"{path}: a job would go on at step {newest.step}; damaged: {'; '.join(skipped)}")
    return ok(NAME, f"{path}: the newest is whole; a job would go on at step {newest.step}")
