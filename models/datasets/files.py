"""Finding a data file and reading it whole, gzipped or not, with a refusal that says what the file looks like."""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
import numpy.typing as npt

from grpc_ps.models.spec import DataFileError

_GZIP = b"\x1f\x8b"
_GZIP_WINDOW = 31
_TEXT = frozenset(b"\t\n\r\f\v") | frozenset(range(32, 127))


def _kind(path: Path) -> str | None:
    """What stands at `path` instead of a file, for people; None for a file."""
    if path.is_symlink() and not path.exists():
        return f"is a dangling link to {path.readlink()}"
    if not path.exists():
        return "is missing"
    if path.is_dir():
        return "is a directory, not a file"
    return None if path.is_file() else "is not a regular file"


def stored(plain: Path) -> Path:
    """The file, plain or gzipped; the plain name wins if there are both, the gzipped one is named if there is none."""
    return plain if os.path.lexists(plain) else plain.with_name(plain.name + ".gz")


def folder_of(directory: Path, inner: str, names: Iterable[str]) -> Path:
    """The folder with files of those names: `directory` itself, or `inner` in it.

    Raises:
        DataFileError: `directory` is not a directory.
    """
    if not directory.is_dir():
        found = "is not a" if directory.exists() else "there is no such"
        raise DataFileError(f"--data-dir {directory}: {found} directory")
    here = any(os.path.lexists(stored(directory / name)) for name in names)
    return directory / inner if (directory / inner).is_dir() and not here else directory


def looks_like(data: bytes) -> str | None:
    """What text is in place of binary data, for people; None if it is binary."""
    head = data[:512]
    if not head or not _TEXT.issuperset(head):
        return None
    markup = head.lstrip().lower()
    return "an HTML page" if markup.startswith((b"<!doctype", b"<html", b"<head", b"<!--")) else "text"


def read_bytes(path: Path) -> bytes:
    """The file's bytes as they are.

    Raises:
        DataFileError: nothing readable is there, or it is text or HTML.
    """
    kind = _kind(path)
    if kind is not None:
        raise DataFileError(f"{path}: {kind}")
    try:
        data = path.read_bytes()
    except OSError as error:
        raise DataFileError(f"{path}: cannot be read: {error.strerror}") from error
    text = looks_like(data)
    if text is not None:
        raise DataFileError(f"{path}: holds {text} (it begins with {data[:24]!r}), not data")
    return data


def _inflate(path: Path, data: bytes, header: int, length_of: Callable[[bytes], int]) -> tuple[bytes, str]:
    """Unpacks what there is, up to one byte too many; the text says whether the gzip data ended early."""
    stream = zlib.decompressobj(_GZIP_WINDOW)
    try:
        unpacked = stream.decompress(data, header)
        expected = length_of(unpacked) if len(unpacked) == header else header
        unpacked += stream.decompress(stream.unconsumed_tail, expected - len(unpacked) + 1)
    except zlib.error as error:
        raise DataFileError(f"{path}: damaged gzip data: {error}") from error
    if stream.unused_data:
        raise DataFileError(f"{path}: {len(stream.unused_data)} surplus bytes after the end of the gzip data")
    if len(unpacked) > expected:
        return unpacked, " or more"
    return unpacked, "" if stream.eof else f" unpacked from {len(data)} bytes of gzip data that end too early"


def read_whole(path: Path, header: int, length_of: Callable[[bytes], int], form: str = "") -> bytes:
    """The contents of a file, unpacked if it is gzip (told by its content), of exactly the length it declares.

    Args:
        path: the file.
        header: bytes of the header, at least one: the first ones of a format that has none.
        length_of: given the header, the length of the contents with it; may refuse it.
        form: says for people what makes that length.

    Raises:
        DataFileError: as `read_bytes`, or the length is another, with both counts in the text.
    """
    data = read_bytes(path)
    note = ""
    if data.startswith(_GZIP):
        data, note = _inflate(path, data, header, length_of)
    if len(data) < header:
        raise DataFileError(f"{path}: expected at least {header} bytes{form}, found {len(data)}{note}")
    expected = length_of(data[:header])
    if len(data) != expected or note:
        raise DataFileError(f"{path}: expected {expected} bytes{form}, found {len(data)}{note}")
    return data


def check_labels(path: Path, labels: npt.NDArray[np.uint8], classes: int) -> None:
    """Refuses labels that are no class.

    Raises:
        DataFileError: with the first record, its label and the range.
    """
    wrong = np.flatnonzero(labels >= classes)
    if len(wrong):
        record, value = int(wrong[0]), int(labels[wrong[0]])
        more = f" and {len(wrong) - 1} more" if len(wrong) > 1 else ""
        counted = f"record {record} (counted from 0)"
        raise DataFileError(f"{path}: label {value} in {counted}{more}, allowed are 0 to {classes - 1}")
