"""Rows of tables: where they lie, what they begin with, and how they travel behind an image. Pure.

Row r of a table is on shard r mod S. Behind the image of a push come, for each table in order of the names, the ids of
the rows that have a gradient and their gradients; then, for each table, the ids of the rows that are wanted. Behind the
image of a release come the values of those. Each of these pieces begins at a multiple of 64 bytes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.image import Bytes, padded

Array = npt.NDArray[Any]
Ids = npt.NDArray[np.int64]

ID_BYTES = 8
_VALUE_BYTES = 4
# The constants of SplitMix64 (Steele, Lea and Flood 2014).
_STEP, _MIX_1, _MIX_2 = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
_MASK = (1 << 64) - 1


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of one table: ids that rise, shape [n], and values, shape [n, dim]."""

    ids: Ids
    values: Array


def tables_of(specs: Iterable[ParameterSpec]) -> tuple[ParameterSpec, ...]:
    """Returns those parameters that are tables, in order of their names, as messages count them."""
    return tuple(sorted((spec for spec in specs if spec.table is not None), key=lambda spec: spec.name))


def rows_on_shard(rows: int, shard: int, shard_count: int) -> int:
    """How many of a table's rows a shard has."""
    return max(0, -(-(rows - shard) // shard_count))


def split_ids(ids: Ids, shard_count: int) -> list[npt.NDArray[np.intp] | slice]:
    """Returns for each shard the places of its rows among `ids`."""
    if shard_count == 1:
        return [slice(None)]
    owners = ids % shard_count
    return [np.flatnonzero(owners == shard) for shard in range(shard_count)]


def distinct(ids: Array) -> Ids:
    """Returns ids of any shape as int64, each once, rising. Four times faster than NumPy's `unique`, which hashes."""
    ordered = np.sort(ids.astype(np.int64, copy=False), axis=None)
    first = np.ones(len(ordered), bool)
    np.not_equal(ordered[1:], ordered[:-1], out=first[1:])
    return ordered[first]


def problem_of_ids(ids: Ids, rows: int, shard: int, shard_count: int) -> str:
    """Says what is wrong with ids that are to rise, to be rows of a table, and to be a shard's; empty if nothing is."""
    if not ids.size:
        return ""
    if ids[0] < 0 or ids[-1] >= rows or not (ids[1:] > ids[:-1]).all():
        return f"ids must rise, and be from 0 to {rows - 1}"
    if shard_count > 1 and not (ids % shard_count == shard).all():
        return f"ids must be {shard} modulo {shard_count}, the number of shards"
    return ""


def ids_bytes(counts: Sequence[int]) -> int:
    """Bytes of so many ids of each table."""
    return sum(padded(count * ID_BYTES) for count in counts)


def values_bytes(tables: Sequence[ParameterSpec], counts: Sequence[int]) -> int:
    """Bytes of the values of so many rows of each table."""
    return sum(padded(count * spec.shape[1] * _VALUE_BYTES) for spec, count in zip(tables, counts, strict=True))


def gradients_bytes(tables: Sequence[ParameterSpec], counts: Sequence[int]) -> int:
    """Bytes of the ids and gradients of so many rows of each table."""
    return ids_bytes(counts) + values_bytes(tables, counts)


def view_gradients(tables: Sequence[ParameterSpec], counts: Sequence[int], buffer: Bytes) -> list[Rows]:
    """Returns views of rows with their gradients in memory that begins with them."""
    found, at = [], 0
    for spec, count in zip(tables, counts, strict=True):
        ids = buffer[at : at + count * ID_BYTES].view("<i8")
        at += padded(count * ID_BYTES)
        found.append(Rows(ids, _values(spec, count, buffer, at)))
        at += padded(count * spec.shape[1] * _VALUE_BYTES)
    return found


def view_ids(counts: Sequence[int], buffer: Bytes) -> list[Ids]:
    """Returns views of ids in memory that begins with them."""
    found, at = [], 0
    for count in counts:
        found.append(buffer[at : at + count * ID_BYTES].view("<i8"))
        at += padded(count * ID_BYTES)
    return found


def view_values(tables: Sequence[ParameterSpec], counts: Sequence[int], buffer: Bytes) -> list[Array]:
    """Returns views of rows' values in memory that begins with them."""
    found, at = [], 0
    for spec, count in zip(tables, counts, strict=True):
        found.append(_values(spec, count, buffer, at))
        at += padded(count * spec.shape[1] * _VALUE_BYTES)
    return found


def _values(spec: ParameterSpec, count: int, buffer: Bytes, at: int) -> Array:
    dim = spec.shape[1]
    return buffer[at : at + count * dim * _VALUE_BYTES].view("<f4").reshape(count, dim)


PIECE_ELEMENTS = 1 << 16


def first_values(spec: ParameterSpec, seed: int, ids: Ids, out: Array | None = None) -> Array:
    """Returns what rows begin with: even in -spread up to spread, a function of seed, name, id and column alone.

    Element c of row r is element r * dim + c of the sequence of SplitMix64 whose state is the job's seed plus the first
    eight bytes, little-endian, of the sha256 of the table's name. The upper 24 bits of each number are taken.

    Args:
        out: where to write them, [n, dim] of float32; a new array if not given.
    """
    dim = spec.shape[1]
    values = np.empty((len(ids), dim), np.float32) if out is None else out
    spread = np.float32(spec.table.spread if spec.table is not None else 0)
    name = int.from_bytes(hashlib.sha256(spec.name.encode("utf-8", "surrogatepass")).digest()[:8], "little")
    state = np.uint64((seed + name) & _MASK)
    columns = np.arange(1, dim + 1, dtype=np.uint64)
    for piece in _pieces(len(ids), dim):
        numbers = ids[piece].astype(np.uint64)[:, None] * np.uint64(dim) + columns
        _mix(numbers, state)
        even = values[piece]
        np.multiply(numbers, np.float32(2**-23), out=even, casting="unsafe", dtype=np.float32)
        even -= np.float32(1)
        even *= spread
    return values


def _pieces(count: int, dim: int) -> Iterator[slice]:
    """Cuts rows so small that their numbers stay in the cache."""
    step = max(1, PIECE_ELEMENTS // dim)
    for start in range(0, count, step):
        yield slice(start, min(start + step, count))


def _mix(numbers: npt.NDArray[np.uint64], state: np.uint64) -> None:
    """Makes of places in the sequence the upper 24 bits of the numbers there, in place; arithmetic wraps."""
    numbers *= np.uint64(_STEP)
    numbers += state
    numbers ^= numbers >> np.uint64(30)
    numbers *= np.uint64(_MIX_1)
    numbers ^= numbers >> np.uint64(27)
    numbers *= np.uint64(_MIX_2)
    numbers ^= numbers >> np.uint64(31)
    numbers >>= np.uint64(40)
