"""Files that are whole or not there, also after a crash: written under another name, synced, renamed."""

from __future__ import annotations

import errno
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from grpc_ps.client.shared.checkpoint_format import At, nowhere
from grpc_ps.client.shared.errors import CheckpointError


@contextmanager
def reporting(path: Path, doing: str) -> Iterator[None]:
    """Turns an OSError inside into CheckpointError: `path: cannot be written: No space left on device`."""
    try:
        yield
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be {doing}: {error.strerror or error}") from error


def sync_folder(path: Path) -> None:
    """Makes names durable that were made or changed in a folder. Raises OSError."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        # Some network file systems know no such thing: there names are durable at once.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP):
            raise
    finally:
        os.close(descriptor)


@contextmanager
def replacing(path: Path, at: At = nowhere, points: str = "file") -> Iterator[BinaryIO]:
    """Gives an unbuffered file that becomes `path` at the end of the block; if the block raises, the file is removed.

    `at` is told `points`.sync, .rename before those. Raises OSError.
    """
    # The name is random: a process that was given up may write the same file yet.
    temporary = path.with_name(f".{path.name}.{secrets.token_hex(4)}")
    try:
        with open(temporary, "xb", buffering=0) as file:
            yield file
            at(f"{points}.sync")
            os.fsync(file.fileno())
        at(f"{points}.rename")
        temporary.rename(path)
    except BaseException:
        with suppress(OSError):
            temporary.unlink()
        raise
    sync_folder(path.parent)


def write_all(file: BinaryIO, data: memoryview | bytes) -> None:
    """Writes all of it to an unbuffered file, which may take less at once than it is given."""
    rest = memoryview(data)
    while rest:
        rest = rest[file.write(rest) :]
