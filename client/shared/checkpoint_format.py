"""What a checkpoint consists of: names in the folder, and pieces of parameters in its parts. Pure.

DIR/lock.json                      whose folder it is (`checkpoint_lock.py`)
DIR/step-00000040/                 a checkpoint: there only when it is whole
    shard-00000-of-00002.safetensors   one part a shard, each a file that the package safetensors reads
    manifest.json                      what the parts are, and the job; written last (`checkpoint_manifest.py`)
    evaluation.json                    metrics of that step, if it was evaluated
DIR/queue.json, job-0001/          of a cluster that takes jobs: the queue (`psserver/queue_file.py`), a folder for each
DIR/.saving-00000040-1f0c.../      one that is being written; .damaged-... and .removing-... wait for removal
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from grpc_ps.client.shared.blocks import ITEM_BYTES

MANIFEST = "manifest.json"
EVALUATION = "evaluation.json"
LEFTOVERS = (".saving-", ".damaged-", ".removing-")

At: TypeAlias = Callable[[str], None]
"""Told the name of each point of writing a checkpoint, before what it names; may raise OSError."""
AVERAGE = "average"
"""The slot with the moving average of a parameter's values."""

_STEP = re.compile(r"step-(\d{8,})")
_KEY = re.compile(r"(?:values|slots/([^/]+))/(.+)\[(\d+):(\d+)\]", re.DOTALL)
_RESIDUAL = "residual."
_ROWS = "rows."
_RESIDUAL_SLOT = re.compile(r"residual\.(0|[1-9][0-9]{0,9})")


def nowhere(point: str) -> None:
    """Takes the points of writing where nobody wants to know."""


def step_name(step: int) -> str:
    """Name of the folder of a step's checkpoint."""
    return f"step-{step:08d}"


def step_of(name: str) -> int | None:
    """Returns the step of a folder of that name, or None if it is no checkpoint's."""
    found = _STEP.fullmatch(name)
    # Other spellings of a number (`step-000000000040`) are none of ours.
    return int(found[1]) if found and step_name(int(found[1])) == name else None


def part_name(shard: int, shard_count: int) -> str:
    """Name of a shard's file in it."""
    return f"shard-{shard:05d}-of-{shard_count:05d}.safetensors"


def residual_slot(worker: int) -> str:
    """Name of the slot that has what a worker kept back of its pushes. It need not be there for every element."""
    return f"{_RESIDUAL}{worker}"


def worker_of_slot(slot: str) -> int | None:
    """Returns the worker's index of such a slot, or None for any other; no other spelling of it is one."""
    found = _RESIDUAL_SLOT.fullmatch(slot)
    return int(found[1]) if found else None


IDS, VALUES = "ids", "values"
"""What a part has of a table's rows, beside their slots."""


def rows_slot(name: str) -> str:
    """Name of the slot that has `IDS` or `VALUES` of a table's rows in one part, or a slot of them (`slot.NAME`)."""
    return f"{_ROWS}{name}"


def is_rows_slot(slot: str) -> bool:
    """Whether it is of a table's rows: its elements are counted in each part anew."""
    return slot.startswith(_ROWS)


@dataclass(frozen=True, slots=True)
class Piece:
    """A contiguous flat range of a parameter's elements, or of a slot of it: `start` up to, not including, `stop`.

    `slot` is empty for the value itself. `dtype` is numpy's name, one of `ITEM_BYTES`.
    """

    parameter: str
    slot: str
    start: int
    stop: int
    dtype: str

    def __post_init__(self) -> None:
        if self.dtype not in ITEM_BYTES or not 0 <= self.start <= self.stop or not self.parameter or "/" in self.slot:
            raise ValueError(f"no piece of a parameter: {self.key} as {self.dtype}")

    @property
    def nbytes(self) -> int:
        """Bytes of the elements."""
        return (self.stop - self.start) * ITEM_BYTES[self.dtype]

    @property
    def key(self) -> str:
        """Its name in a part, from which `piece_of` makes it again: `values/dense/kernel[0:784]`, `slots/m/...`."""
        kind = f"slots/{self.slot}" if self.slot else "values"
        return f"{kind}/{self.parameter}[{self.start}:{self.stop}]"


def piece_of(key: str, dtype: str) -> Piece:
    """Makes the piece of a name in a part. Raises ValueError if no piece has that name."""
    found = _KEY.fullmatch(key)
    if found is None:
        raise ValueError(f"{key!r} is no piece of a parameter")
    piece = Piece(found[2], found[1] or "", int(found[3]), int(found[4]), dtype)
    if piece.key != key:
        raise ValueError(f"{key!r} is no piece of a parameter")
    return piece
