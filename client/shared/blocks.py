"""Parameters, the blocks they are cut into, and the placement of blocks on shards. Pure.

A table has no blocks: its row r lies on shard r mod S (`rows.py`).
"""

from __future__ import annotations

import hashlib
import heapq
import math
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from types import MappingProxyType

from grpc_ps.client.shared.tables import TableSpec

# Element types by numpy's name, with the bytes of one element. protos/tensor.proto: DType.
ITEM_BYTES: Mapping[str, int] = MappingProxyType(
    {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2, "int32": 4, "int64": 8, "bool": 1}
)
FLOATING = frozenset({"float32", "float64", "float16", "bfloat16"})

# Characters.
MAX_NAME = 256
# The rule of protos/tensor.proto, in elements: up to how many a parameter is one block, and how long pieces are.
WHOLE_ELEMENTS = 128 * 1024
MAX_PIECE = 256 * 1024
MIN_PIECE = 16 * 1024
PIECE_MULTIPLE = 1024
PIECES_AIMED_AT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ParameterSpec:
    """Describes one named tensor of a model: what it looks like, not its values.

    `dtype` is numpy's name, one of `ITEM_BYTES`. An empty shape is a scalar. With `table` it is one, of shape
    [rows, dim]. Raises ValueError for anything the wire cannot carry.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool = True
    table: TableSpec | None = None

    def __post_init__(self) -> None:
        if not 1 <= len(self.name) <= MAX_NAME:
            raise ValueError(f"parameter {self.name!r}: a name has 1 to {MAX_NAME} characters, not {len(self.name)}")
        if self.dtype not in ITEM_BYTES:
            raise ValueError(f"parameter {self.name}: type {self.dtype} is not one of {', '.join(ITEM_BYTES)}")
        if any(extent < 0 for extent in self.shape):
            raise ValueError(f"parameter {self.name}: shape {self.shape} has a negative extent")
        if self.table is not None and not self._fits_a_table():
            raise ValueError(
                f"table {self.name}: must be trainable, float32 and [rows, dim], not {self.dtype} {self.shape}"
            )

    def _fits_a_table(self) -> bool:
        return self.trainable and self.dtype == "float32" and len(self.shape) == 2 and min(self.shape) > 0

    @property
    def size(self) -> int:
        """Number of elements."""
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes of all elements."""
        return self.size * ITEM_BYTES[self.dtype]


@dataclass(frozen=True, slots=True)
class Block:
    """A contiguous flat range of one parameter's row-major elements: `start` up to, not including, `stop`.

    The one unit of placement, of the wire and of the store.
    """

    parameter: str
    start: int
    stop: int
    dtype: str
    trainable: bool

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.stop - self.start

    @property
    def nbytes(self) -> int:
        """Bytes of the elements, without padding."""
        return (self.stop - self.start) * ITEM_BYTES[self.dtype]

    @property
    def byte_span(self) -> slice:
        """Where the elements lie among the bytes of the whole parameter."""
        item = ITEM_BYTES[self.dtype]
        return slice(self.start * item, self.stop * item)

    @property
    def floating(self) -> bool:
        """Whether a push carries this block: gradients, and deltas of state, are floating-point only."""
        return self.dtype in FLOATING


@dataclass(frozen=True)
class Placement:
    """Which shard has which blocks; each shard's blocks are in order of (parameter, start)."""

    shards: tuple[tuple[Block, ...], ...]
    fingerprint: str


def cut(spec: ParameterSpec) -> tuple[Block, ...]:
    """Cuts a parameter into blocks by the rule of `protos/tensor.proto`: a function of the element count alone.

    A table has none.
    """
    count = spec.size if spec.table is None else 0
    step = count if count <= WHOLE_ELEMENTS else _piece(count)
    return tuple(
        Block(spec.name, start, min(start + step, count), spec.dtype, spec.trainable)
        for start in range(0, count, max(step, 1))
    )


def _piece(count: int) -> int:
    """Elements of a piece of a parameter that is too large for one block."""
    share = -(-count // PIECES_AIMED_AT)
    rounded = -(-share // PIECE_MULTIPLE) * PIECE_MULTIPLE
    return min(MAX_PIECE, max(MIN_PIECE, rounded))


def place(parameters: Iterable[ParameterSpec], shard_count: int) -> Placement:
    """Places every block on exactly one shard, the same way in every process.

    The largest blocks go first, each to the shard with the fewest bytes so far ("longest processing time first":
    Graham, 1969), so that no shard has more than the mean plus one block. Raises ValueError for duplicate names and
    for less than one shard.
    """
    if shard_count < 1:
        raise ValueError(f"a placement needs at least one shard, not {shard_count}")
    ordered = sorted(parameters, key=lambda spec: spec.name)
    _refuse_duplicates(ordered)
    blocks = sorted((block for spec in ordered for block in cut(spec)), key=lambda b: (-b.nbytes, b.parameter, b.start))
    shards: list[list[Block]] = [[] for _ in range(shard_count)]
    loads = [(0, shard) for shard in range(shard_count)]
    for block in blocks:
        load, shard = loads[0]
        shards[shard].append(block)
        heapq.heapreplace(loads, (load + block.nbytes, shard))
    placed = tuple(tuple(sorted(shard, key=lambda b: (b.parameter, b.start))) for shard in shards)
    return Placement(placed, _fingerprint(ordered, placed))


def _refuse_duplicates(ordered: Sequence[ParameterSpec]) -> None:
    for one, other in pairwise(ordered):
        if one.name == other.name:
            raise ValueError(f"parameter {one.name} is declared twice")


def _fingerprint(ordered: Sequence[ParameterSpec], shards: Sequence[Sequence[Block]]) -> str:
    """Hex sha256 over a canonical text; names are quoted so that no name can imitate another line."""
    lines = [f"shards {len(shards)}"]
    lines += [f"parameter {p.name!a} {p.dtype} {list(p.shape)} {int(p.trainable)}" for p in ordered]
    lines += [_table_line(p.name, p.table) for p in ordered if p.table is not None]
    lines += [
        f"block {shard} {b.parameter!a} {b.start} {b.stop}" for shard, blocks in enumerate(shards) for b in blocks
    ]
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()


def _table_line(name: str, table: TableSpec) -> str:
    spread = struct.pack(">d", table.spread).hex()
    return f"table {name!a} {spread} {int(table.lazy)} {table.push_rows} {table.capacity}"
