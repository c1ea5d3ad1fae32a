"""One file of tensors in the format of safetensors: written in a stream, read by ranges.

The format: eight bytes with the length of the header, little-endian; the header, JSON that has each tensor's type,
shape and range of the bytes behind it; those bytes, without gaps.

Neither end uses the package safetensors: it takes all tensors as `bytes` and returns copies, and has neither a hash of
what it writes nor ranges of bfloat16. Tests read with it what is written here.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, Protocol

from grpc_ps.client.shared.blocks import ITEM_BYTES
from grpc_ps.client.shared.checkpoint_format import At, Piece, nowhere, piece_of
from grpc_ps.client.shared.checkpoint_manifest import Part
from grpc_ps.client.shared.durable import replacing, reporting, write_all

TYPE_NAMES: Mapping[str, str] = MappingProxyType(
    {
        "float64": "F64",
        "float32": "F32",
        "float16": "F16",
        "bfloat16": "BF16",
        "int64": "I64",
        "int32": "I32",
        "bool": "BOOL",
    }
)
"""The format's names of the types that a parameter can have."""

DTYPES: Mapping[str, str] = MappingProxyType({name: dtype for dtype, name in TYPE_NAMES.items()})
"""The other way round."""

_WRITE_BYTES = 4 << 20
_ALIGNMENT = 64
# What the package safetensors takes for a header.
_MAX_HEADER = 100_000_000


class Bytes(Protocol):
    """Bytes that may be made when they are asked for, a slice at a time; a `memoryview` is some."""

    @property
    def nbytes(self) -> int:
        """How many there are."""

    def __getitem__(self, span: slice) -> memoryview:
        """Some of them, with a step of one."""


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor to write: `data` has its elements, row by row, little-endian, in any contiguous buffer."""

    key: str
    dtype: str
    shape: tuple[int, ...]
    data: Bytes


def write_part(
    folder: Path, file: str, pieces: Sequence[tuple[Piece, Bytes]], metadata: Mapping[str, str], at: At = nowhere
) -> Part:
    """Writes a shard's part of a checkpoint into a folder, which it makes if need be; the folder above has to be there.

    The data is not copied. The file gets its name when it is whole and synced. May block for as long as the disk does.

    Args:
        pieces: each with its bytes.
        metadata: what the file says of itself.
        at: told part.open, part.write (before each write of at most 4 MiB), part.sync, part.rename and part.done.

    Raises:
        CheckpointError: it cannot be written; what was written is removed.
        ValueError: a piece and its data do not fit, or a piece is there twice.
    """
    tensors = [Tensor(piece.key, piece.dtype, (piece.stop - piece.start,), data) for piece, data in pieces]
    path = folder / file
    with reporting(path, "written"):
        at("part.open")
        folder.mkdir(exist_ok=True)
        part = write_tensors(path, tensors, metadata, at)
        at("part.done")
    return part


def write_tensors(path: Path, tensors: Sequence[Tensor], metadata: Mapping[str, str], at: At = nowhere) -> Part:
    """Writes a file of tensors; as `write_part`, but raises OSError."""
    # The largest elements first: so each tensor lies at a multiple of its own.
    ordered = sorted(tensors, key=lambda tensor: -ITEM_BYTES[tensor.dtype])
    header = _header(ordered, metadata)
    digest, size = hashlib.sha256(), 0
    with replacing(path, at, "part") as out:
        for data in (memoryview(header), *(_flat(tensor.data) for tensor in ordered)):
            for start in range(0, data.nbytes, _WRITE_BYTES):
                piece = data[start : start + _WRITE_BYTES]
                at("part.write")
                write_all(out, piece)
                digest.update(piece)
                size += piece.nbytes
    return Part(path.name, size, digest.hexdigest())


def _flat(data: Bytes) -> Bytes:
    if not isinstance(data, memoryview):
        return data
    # A view without elements cannot be cast.
    return data.cast("B") if data.nbytes else memoryview(b"")


def _header(tensors: Sequence[Tensor], metadata: Mapping[str, str]) -> bytes:
    record: dict[str, Any] = {"__metadata__": dict(metadata)}
    end = 0
    for tensor in tensors:
        if tensor.key in record:
            raise ValueError(f"{tensor.key} is there twice")
        nbytes = math.prod(tensor.shape) * ITEM_BYTES[tensor.dtype]
        if tensor.data.nbytes != nbytes:
            raise ValueError(f"{tensor.key} has {tensor.data.nbytes} bytes of data, not {nbytes}")
        record[tensor.key] = {
            "dtype": TYPE_NAMES[tensor.dtype],
            "shape": tensor.shape,
            "data_offsets": (end, end + nbytes),
        }
        end += nbytes
    text = json.dumps(record, separators=(",", ":")).encode()
    text += b" " * (-(8 + len(text)) % _ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def digest_of(path: Path) -> str:
    """Returns the hex sha256 of a file's bytes. Raises OSError."""
    digest = hashlib.sha256()
    buffer = memoryview(bytearray(1 << 20))
    with open(path, "rb", buffering=0) as file:
        while size := file.readinto(buffer):
            digest.update(buffer[:size])
    return digest.hexdigest()


class PartReader:
    """Reads ranges of the pieces of one part. Close it; any thread may read.

    The file is read and not mapped: what is lost under a map (a disk fails, another program cuts the file off) kills
    the process; here it is an OSError.

    Raises OSError, or ValueError for what is no such file.

    Attributes:
        pieces: where each lies, in bytes from the file's beginning.
        metadata: what the file says of itself.
    """

    def __init__(self, path: Path) -> None:
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            self.metadata, self.pieces = self._parse()
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the file; more than once is fine."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def read(self, offset: int, out: memoryview) -> None:
        """Fills a writable buffer of bytes from that place in the file."""
        while out:
            size = os.preadv(self._descriptor, [out], offset)
            if not size:
                raise ValueError("ends too soon")
            offset, out = offset + size, out[size:]

    def _parse(self) -> tuple[dict[str, str], dict[Piece, int]]:
        total = os.fstat(self._descriptor).st_size
        length = int.from_bytes(self._bytes(0, 8), "little") if total >= 8 else total
        if not 2 <= length <= min(total - 8, _MAX_HEADER):
            raise ValueError("is no file of tensors")
        record = json.loads(self._bytes(8, length))
        if not isinstance(record, dict):
            raise ValueError("has a header that is no JSON object")
        metadata = record.pop("__metadata__", {})
        pieces = dict(_entries(record, 8 + length, total))
        return {str(key): str(value) for key, value in metadata.items()}, pieces

    def _bytes(self, offset: int, size: int) -> bytes:
        buffer = bytearray(size)
        self.read(offset, memoryview(buffer))
        return bytes(buffer)


def _entries(record: Mapping[str, Any], begin: int, total: int) -> Iterator[tuple[Piece, int]]:
    for key, entry in record.items():
        try:
            start, stop = entry["data_offsets"]
            piece = piece_of(key, DTYPES[entry["dtype"]])
        except (KeyError, TypeError) as error:
            raise ValueError(f"describes {key!r} wrongly: {error!r}") from None
        if not 0 <= start <= stop <= total - begin or stop - start != piece.nbytes:
            raise ValueError(f"{key!r} lies at {start} to {stop}")
        yield piece, begin + start
