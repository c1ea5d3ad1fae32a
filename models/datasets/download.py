"""Fetching published data files: each whole and of the right sum, or not there at all, for any number of processes.

One process at a time downloads into a folder; the others wait for it and find the files. What holds the lock is an open
file, so it is let go of with the process, however that ends. Without need nothing is written and nobody is asked; of a
download that fails nothing is left, neither half a file nor the lock nor an empty folder.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import tarfile
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from grpc_ps.models.datasets import Progress
from grpc_ps.models.datasets.files import looks_like, stored
from grpc_ps.models.datasets.transfer import TooSlow, TransferError, blocks_of
from grpc_ps.models.spec import DataFileError

LOCK = ".download.lock"
LEAST_RATE = 1 << 14
"""Bytes a second that a server has to come to, and `GRACE` the seconds that it has beside that."""
GRACE = 60.0

PATIENCE = 120.0
"""Seconds for which another process that downloads may get on with nothing."""

_BLOCK = 1 << 18
_LOOK = 0.1


@dataclass(frozen=True, kw_only=True)
class Published:
    """A file as its publisher has it.

    Attributes:
        name: behind the base address.
        size: its bytes.
        sha256: its sum, in hex.
        holds: the data files that it is or has in it; their plain names, for each may lie here gzipped or not.
        archive: whether it is a tar archive of those; any other file is kept under its name.
    """

    name: str
    size: int
    sha256: str
    holds: tuple[str, ...]
    archive: bool = False


def fetch(folder: Path, files: Sequence[Published], base: str, progress: Progress, patience: float = PATIENCE) -> None:
    """Fetches the files of which something is missing in a folder, which is made if it is not there.

    Raises:
        DataFileError: one cannot be had or is not what was published, or the folder cannot be written. The text names
            the file and the address.
    """
    if not _missing(folder, files):
        return
    with _reporting(folder), _alone(folder, patience):
        # Looked at again: whoever had the lock may have fetched them.
        for file in _missing(folder, files):
            _fetch(folder, file, f"{base.rstrip('/')}/{file.name}", progress)


def _missing(folder: Path, files: Sequence[Published]) -> list[Published]:
    return [file for file in files if not all(os.path.lexists(stored(folder / name)) for name in file.holds)]


@contextmanager
def _reporting(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise DataFileError(f"{error.filename or folder}: cannot be written: {error.strerror or error}") from error


@contextmanager
def _alone(folder: Path, patience: float) -> Iterator[None]:
    """Makes the folder if need be, and holds its lock, which another process may have for as long as it gets on.

    Afterwards the lock's file is gone, and so is what was made of the folder's path, if nothing has come into it.
    """
    made = [each for each in (folder, *folder.parents) if not each.exists()]
    descriptor = _lock(folder, patience)
    try:
        yield
    finally:
        # As long as it is held: whoever has opened it meanwhile finds that it is not the folder's lock any more.
        (folder / LOCK).unlink(missing_ok=True)
        os.close(descriptor)
        with suppress(OSError):
            for each in made:
                each.rmdir()


def _lock(folder: Path, patience: float) -> int:
    seen, since = _parts(folder), time.monotonic()
    while (descriptor := _locked(folder)) is None:
        if (now := _parts(folder)) != seen:
            seen, since = now, time.monotonic()
        elif time.monotonic() - since > patience:
            raise DataFileError(f"{folder}: another process downloads into it, and got nothing for {patience:g} s")
        time.sleep(_LOOK)
    return descriptor


def _locked(folder: Path) -> int | None:
    """The lock's descriptor, or None: another process holds it, or has just let go of it and of its file."""
    with suppress(FileNotFoundError):
        folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.path.samestat(os.stat(folder / LOCK), os.fstat(descriptor)):
                return descriptor
        except (BlockingIOError, FileNotFoundError):
            pass
        os.close(descriptor)
    return None


@contextmanager
def _part(path: Path) -> Iterator[Path]:
    """What a file is called until it is whole and renamed; gone with the block.

    Only who holds the lock writes it, so a dead one's is written over.
    """
    part = path.with_name(f".{path.name}.part")
    try:
        yield part
    finally:
        part.unlink(missing_ok=True)


def _parts(folder: Path) -> list[tuple[str, int]]:
    """Names and lengths of what is not whole yet."""
    found = []
    for path in sorted(folder.glob(".*.part")):
        with suppress(OSError):
            found.append((path.name, path.stat().st_size))
    return found


def _fetch(folder: Path, file: Published, url: str, progress: Progress) -> None:
    path = folder / file.name
    with _part(path) as part:
        _write(part, _received(path, file, url, progress))
        if file.archive:
            _unpack(part, folder, file)
        else:
            part.rename(path)
    _sync(folder)


def _write(part: Path, blocks: Iterable[bytes]) -> None:
    with part.open("wb") as out:
        for block in blocks:
            out.write(block)
        out.flush()
        os.fsync(out.fileno())


def _received(path: Path, file: Published, url: str, progress: Progress) -> Iterator[bytes]:
    """What the address has; refuses what is not as published, and takes nothing beyond its size."""
    digest, size, head = hashlib.sha256(), 0, b""
    progress(file.name, 0, file.size)
    for block in _blocks(path, url, GRACE + file.size / LEAST_RATE):
        head = head or block
        size += len(block)
        if size > file.size:
            break
        yield block
        digest.update(block)
        progress(file.name, size, file.size)
    if size != file.size:
        more, text = " or more" if size > file.size else "", looks_like(head)
        what = f", {text}" if text else ""
        raise DataFileError(f"{path}: {url} gave {size} bytes{more}{what}; expected {file.size}: try again")
    if digest.hexdigest() != file.sha256:
        found = digest.hexdigest()
        raise DataFileError(f"{path}: {url} has not what was published: its sha256 is {found}, expected {file.sha256}")


def _blocks(path: Path, url: str, seconds: float) -> Iterator[bytes]:
    """The contents of an address, as they come."""
    try:
        yield from blocks_of(url, seconds)
    except TooSlow as error:
        raise DataFileError(f"{path}: {error}: try again, or another --download-url") from error
    except TransferError as error:
        raise DataFileError(f"{path}: {error}") from error


def _unpack(archive: Path, folder: Path, file: Published) -> None:
    """Puts the data files of an archive into the folder, each whole; whatever else is in it is left there.

    Names count only behind the last slash, so nothing is written elsewhere.
    """
    wanted = set(file.holds)
    with tarfile.open(archive) as tar:
        for member in tar:
            name = member.name.rpartition("/")[2]
            if name in wanted and member.isfile() and (source := tar.extractfile(member)) is not None:
                with _part(folder / name) as part:
                    _write(part, iter(partial(source.read, _BLOCK), b""))
                    part.rename(folder / name)
                wanted.discard(name)
    if wanted:
        raise DataFileError(f"{folder / file.name}: has no {', '.join(sorted(wanted))} in it")


def _sync(folder: Path) -> None:
    """Makes the new names durable, where the file system knows such a thing."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        with suppress(OSError):
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
