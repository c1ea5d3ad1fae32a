"""This shard's part of checkpoints: written beside training, read when the job begins from one."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.blocks import Block
from grpc_ps.client.shared.checkpoint import Checkpoint, CheckpointReader, read_manifest
from grpc_ps.client.shared.checkpoint_format import At, Piece, nowhere, part_name, worker_of_slot
from grpc_ps.client.shared.checkpoint_part import write_part
from grpc_ps.client.shared.checkpoint_rows import stored_rows
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.image import Bytes, Layout, aligned_buffer, block_views, numpy_dtype
from grpc_ps.client.shared.logs import event
from grpc_ps.protos.coordination_pb2 import Saved
from grpc_ps.psserver.finite import all_finite
from grpc_ps.psserver.saved_rows import non_finite_slot, restore_rows, row_pieces
from grpc_ps.psserver.table_memory import TableMemory, TableView
from grpc_ps.psserver.tail import ShardTables

Array = npt.NDArray[Any]
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class BlockState:
    """A block's bytes at one position: its value, and its slots by name. Later updates do not change them."""

    block: Block
    value: memoryview
    slots: Mapping[str, memoryview]


@dataclass(frozen=True, slots=True)
class BlockValues:
    """What a block begins with: flat arrays of its value and of its slots by name."""

    value: Array
    slots: Mapping[str, Array]


class CheckpointFiles:
    """Writes and reads the parts of one shard. Any thread may use it.

    Attributes:
        writing: whether a part is being written; `begin` says so before the thread that writes does anything.

    Args:
        directory: the folder of checkpoints, the same for all shards.
        shard, shard_count: which part is this shard's.
        at: told the points of writing.
    """

    def __init__(self, directory: Path, shard: int, shard_count: int, at: At = nowhere) -> None:
        self.directory = directory
        self._file = part_name(shard, shard_count)
        self._at = at
        self.writing = False

    def begin(self) -> None:
        """Notes that a part is about to be written."""
        self.writing = True

    def write(
        self,
        folder: str,
        step: int,
        state: Sequence[BlockState],
        tables: Sequence[TableView] = (),
        more: Sequence[tuple[Piece, memoryview]] = (),
    ) -> Saved:
        """Writes the state into `folder`, or says why that is not possible. Never raises for what a disk may do.

        Args:
            tables: with their slots; they are copied a piece at a time.
            more: what is not of the shard itself.
        """
        try:
            pieces = [*(pair for held in state for pair in _pieces(held)), *more]
            return self._write(folder, step, pieces, tables)
        finally:
            self.writing = False

    def _write(
        self, folder: str, step: int, pieces: Sequence[tuple[Piece, memoryview]], tables: Sequence[TableView]
    ) -> Saved:
        for piece, data in pieces:
            if not all_finite(np.frombuffer(data, numpy_dtype(piece.dtype))):
                return not_finite(folder, step, piece.parameter, piece.slot)
        for view in tables:
            # Values are looked at when they are updated.
            if slot := non_finite_slot(view):
                return not_finite(folder, step, view.spec.name, slot)
        try:
            if not self.directory.is_dir():
                event(logger, "checkpoint_folder_made_again", logging.WARNING, folder=self.directory)
                self.directory.mkdir(parents=True, exist_ok=True)
            every = [*pieces, *(pair for view in tables for pair in row_pieces(view))]
            part = write_part(self.directory / folder, self._file, every, {"global_step": str(step)}, self._at)
        except (CheckpointError, OSError) as error:
            return Saved(folder=folder, error=str(error))
        return Saved(folder=folder, file=part.file, bytes=part.bytes, sha256=part.sha256)

    def read(self, name: str, blocks: Sequence[Block], slots: Sequence[str]) -> list[BlockValues]:
        """Reads those blocks with their slots out of the checkpoint of that name, whatever parts they are in.

        Raises:
            CheckpointError: it is not there, damaged, or of another optimizer.
        """
        path = self.directory / name
        with Checkpoint(path, read_manifest(path)).open() as reader:
            return [
                BlockValues(
                    _read(reader, block, ""),
                    {slot: _read(reader, block, slot) for slot in slots if block.trainable and block.floating},
                )
                for block in blocks
            ]

    def read_tables(self, name: str, memories: Sequence[TableMemory], tables: ShardTables) -> None:
        """Reads this shard's rows of tables, with their slots, out of the parts that may have any.

        Raises:
            CheckpointError: it cannot be read, or is of another optimizer.
        """
        path = self.directory / name
        with Checkpoint(path, read_manifest(path)).open() as reader:
            for memory in memories:
                for part in stored_rows(reader, memory.spec):
                    if part.may_be_of(tables.shard, tables.shard_count):
                        restore_rows(memory, part, tables)

    def read_residuals(self, name: str, layout: Layout) -> dict[int, Bytes]:
        """Reads what workers had kept back, by index: images of that layout, zero where nothing is known.

        Raises:
            CheckpointError: a part cannot be read, or has numbers that nobody keeps back: infinite ones, NaN, or such
                of another type.
        """
        path = self.directory / name
        with Checkpoint(path, read_manifest(path)).open() as reader:
            slots = {slot for _, slot in reader.dtypes}
            return {
                worker: _image(reader, path, slot, layout)
                for slot in sorted(slots)
                if (worker := worker_of_slot(slot)) is not None
            }


def _image(reader: CheckpointReader, path: Path, slot: str, layout: Layout) -> Bytes:
    buffer = aligned_buffer(layout.total_bytes)
    for block, view in zip(layout.blocks, block_views(layout, buffer), strict=True):
        dtype = reader.dtypes.get((block.parameter, slot), block.dtype)
        if dtype != block.dtype:
            raise CheckpointError(f"{path}: has {slot} of {block.parameter} as {dtype}, not {block.dtype}")
        reader.read_known(block.parameter, slot, block.start, block.stop, view)
        if not all_finite(view):
            raise CheckpointError(f"{path}: {slot} of {block.parameter} has infinite numbers or NaN")
    return buffer


def not_finite(folder: str, step: int, parameter: str, slot: str = "") -> Saved:
    """What is reported in place of a part that has a NaN or an infinity, which is never written."""
    of = f"slot {slot!r} of parameter {parameter!r}" if slot else f"parameter {parameter!r}"
    return Saved(folder=folder, non_finite=parameter, error=f"{of} has infinite numbers or NaN at step {step}")


def _pieces(held: BlockState) -> list[tuple[Piece, memoryview]]:
    block = held.block
    named = {"": held.value, **held.slots}
    return [(Piece(block.parameter, slot, block.start, block.stop, block.dtype), data) for slot, data in named.items()]


def _read(reader: Any, block: Block, slot: str) -> Array:
    array = np.empty(block.stop - block.start, numpy_dtype(block.dtype))
    if array.size:
        reader.read(block.parameter, slot, block.start, block.stop, array)
    return array
