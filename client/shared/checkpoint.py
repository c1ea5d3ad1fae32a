"""One checkpoint on disk: whether it is whole, and what is in it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.blocks import ITEM_BYTES, ParameterSpec
from grpc_ps.client.shared.checkpoint_format import MANIFEST, Piece, is_rows_slot, rows_slot, step_of, worker_of_slot
from grpc_ps.client.shared.checkpoint_manifest import Manifest, Part
from grpc_ps.client.shared.checkpoint_part import PartReader, digest_of
from grpc_ps.client.shared.durable import reporting
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.image import numpy_dtype

Array = npt.NDArray[Any]

# A manifest names every parameter; beyond this it is something else.
_MAX_MANIFEST = 256 << 20


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint whose manifest has been read."""

    path: Path
    manifest: Manifest

    @property
    def step(self) -> int:
        """Its global step."""
        return self.manifest.global_step

    @contextmanager
    def open(self) -> Iterator[CheckpointReader]:
        """Gives a reader of the numbers.

        Raises:
            CheckpointError: a part is missing or is no such file.
        """
        with ExitStack() as stack:
            readers = []
            for part in self.manifest.parts:
                readers.append(_open_part(self.path / part.file))
                stack.callback(readers[-1].close)
            yield CheckpointReader(self.path, self.manifest.parameters, readers)


class CheckpointReader:
    """Reads ranges of values and slots, whatever the parts that they lie in. Any thread may read.

    Attributes:
        path: the checkpoint's folder.
        dtypes: the type of every value ("" for the slot) and slot that is there, by (parameter, slot).
    """

    def __init__(self, path: Path, parameters: Sequence[ParameterSpec], readers: Sequence[PartReader]) -> None:
        self.path = path
        self._readers = readers
        self._specs = {spec.name: spec for spec in parameters}
        self._held: dict[tuple[str, str], list[tuple[Piece, PartReader, int]]] = {}
        self.dtypes: dict[tuple[str, str], str] = {}
        for reader in readers:
            for piece, offset in reader.pieces.items():
                self._held.setdefault((piece.parameter, piece.slot), []).append((piece, reader, offset))
                self.dtypes[piece.parameter, piece.slot] = piece.dtype
        for pieces in self._held.values():
            pieces.sort(key=lambda held: (held[0].start, held[0].stop))

    def slots(self) -> dict[str, tuple[str, ...]]:
        """Names of the slots of every parameter that has any."""
        found: dict[str, list[str]] = {}
        for parameter, name in sorted(self.dtypes):
            slot = name.removeprefix(rows_slot("slot."))
            if slot and not is_rows_slot(slot):
                found.setdefault(parameter, []).append(slot)
        return {parameter: tuple(slots) for parameter, slots in found.items()}

    def read(self, parameter: str, slot: str, start: int, stop: int, out: Array) -> None:
        """Reads the elements from `start` up to `stop` of a value (slot "") or slot into an array.

        `out` is contiguous and has exactly their bytes, whatever its type and shape.

        Raises:
            CheckpointError: it has not all of them, or a part cannot be read any more.
        """
        item = ITEM_BYTES[self.dtypes.get((parameter, slot), "bool")]
        known = (parameter, slot) in self.dtypes
        if not out.flags.c_contiguous or (known and out.nbytes != (stop - start) * item):
            raise ValueError(f"{parameter} {slot}: {out.nbytes} bytes are not {stop - start} elements in a row")
        # As plain bytes: bfloat16 has no buffer protocol.
        into = out.reshape(-1).view(np.uint8).data
        at = start
        for piece, reader, offset in self._held.get((parameter, slot), ()):
            end = min(stop, piece.stop)
            if piece.start <= at < end:
                span = into[(at - start) * item : (end - start) * item]
                self._read(reader, offset + (at - piece.start) * item, span)
                at = end
        if at < stop:
            what = f"the slot {slot} of {parameter}" if slot else parameter
            raise CheckpointError(f"{self.path}: has not the elements {at} to {stop} of {what}")

    def read_known(self, parameter: str, slot: str, start: int, stop: int, out: Array) -> None:
        """Reads those elements that are there; the others stay as they are. As `read` otherwise."""
        for piece, _, _ in self._held.get((parameter, slot), ()):
            first, last = max(start, piece.start), min(stop, piece.stop)
            if first < last:
                self.read(parameter, slot, first, last, out[first - start : last - start])

    def sizes(self, parameter: str) -> list[dict[str, int]]:
        """For each part the elements that it has of a parameter, by slot."""
        return [
            {piece.slot: piece.stop for piece in reader.pieces if piece.parameter == parameter and not piece.start}
            for reader in self._readers
        ]

    def read_in_part(self, part: int, parameter: str, slot: str, start: int, stop: int, out: Array) -> None:
        """Reads elements of a slot whose elements are counted in each part anew; as `read` otherwise."""
        reader = self._readers[part]
        for piece, offset in reader.pieces.items():
            if (piece.parameter, piece.slot) == (parameter, slot) and stop <= piece.stop:
                item = ITEM_BYTES[piece.dtype]
                if out.nbytes != (stop - start) * item:
                    break
                self._read(reader, offset + start * item, out.reshape(-1).view(np.uint8).data)
                return
        what = f"elements {start} to {stop} of {slot} of {parameter}"
        raise CheckpointError(f"{self.path}: part {part} has not the {what}")

    def value(self, parameter: str, slot: str = "") -> Array:
        """Reads a whole parameter, or a slot of it, in its shape and type. Raises CheckpointError as `read`."""
        spec = self._specs[parameter]
        array = np.empty(spec.shape, numpy_dtype(spec.dtype))
        self.read(parameter, slot, 0, array.size, array)
        return array

    def covers(self, parameter: str, slot: str, size: int) -> bool:
        """Whether the parts have each of so many elements exactly once."""
        end = 0
        for piece, _, _ in self._held.get((parameter, slot), ()):
            if piece.start != end:
                return False
            end = piece.stop
        return end == size

    def _read(self, reader: PartReader, offset: int, out: memoryview) -> None:
        with reporting(self.path, "read"):
            try:
                reader.read(offset, out)
            except ValueError as error:
                raise CheckpointError(f"{self.path}: a part {error}") from None


def read_manifest(path: Path) -> Manifest:
    """Reads the manifest of a checkpoint's folder; of the parts nothing is looked at.

    Raises:
        CheckpointError: names the file and what is wrong.
    """
    file = path / MANIFEST
    with reporting(file, "read"):
        size = file.stat().st_size
        data = file.read_bytes() if size <= _MAX_MANIFEST else b""
    try:
        if size > _MAX_MANIFEST:
            raise ValueError(f"has {size} bytes")
        manifest = Manifest.from_json(data.decode())
    except ValueError as error:
        raise CheckpointError(f"{file}: {error}") from None
    step = step_of(path.name)
    if step is not None and step != manifest.global_step:
        raise CheckpointError(f"{file}: is of step {manifest.global_step}, not of its folder's")
    return manifest


def verify(path: Path) -> list[str]:
    """Reads a checkpoint whole and returns all that is wrong with it, one line each; nothing if it is whole."""
    try:
        manifest = read_manifest(path)
    except CheckpointError as error:
        return [str(error)]
    return verify_parts(path, manifest)


def verify_parts(path: Path, manifest: Manifest) -> list[str]:
    """Compares the parts in a folder with a manifest: lengths, sums, and that nothing is missing in them."""
    problems = [text for part in manifest.parts if (text := _wrong_size(path, part) or _wrong_sum(path, part))]
    if problems:
        return problems
    try:
        with Checkpoint(path, manifest).open() as reader:
            return [f"{path}: {text}" for text in _gaps(reader, manifest)]
    except CheckpointError as error:
        return [str(error)]


def looks_whole(path: Path) -> bool:
    """Whether the manifest is valid and the parts have their lengths: what can be said without reading them."""
    try:
        manifest = read_manifest(path)
    except CheckpointError:
        return False
    return not any(_wrong_size(path, part) for part in manifest.parts)


def _wrong_size(path: Path, part: Part) -> str:
    file = path / part.file
    try:
        size = file.stat().st_size
    except OSError as error:
        return f"{file}: cannot be read: {error.strerror}"
    return "" if size == part.bytes else f"{file}: has {size} bytes, not {part.bytes}"


def _wrong_sum(path: Path, part: Part) -> str:
    file = path / part.file
    try:
        digest = digest_of(file)
    except OSError as error:
        return f"{file}: cannot be read: {error.strerror}"
    return "" if digest == part.sha256 else f"{file}: is damaged: its sha256 is not the manifest's"


def _open_part(file: Path) -> PartReader:
    with reporting(file, "read"):
        try:
            return PartReader(file)
        except ValueError as error:
            raise CheckpointError(f"{file}: {error}") from None


def _gaps(reader: CheckpointReader, manifest: Manifest) -> Iterator[str]:
    """Says what the parts together have not exactly once: every value, and every slot that is there at all."""
    # That module reads with this one.
    from grpc_ps.client.shared.checkpoint_rows import problem_of_rows

    specs = {spec.name: spec for spec in manifest.parameters}
    for name, slot in sorted({*reader.dtypes, *((name, "") for name in specs)}):
        what = f"slot {slot} of {name}" if slot else name
        spec = specs.get(name)
        if spec is None:
            yield f"has {what}, which is no parameter of the model"
        elif spec.table is not None:
            if not slot and (problem := problem_of_rows(reader, spec)):
                yield problem
        elif worker_of_slot(slot) is not None:
            # A worker that did not answer in time has nothing there, and that is no damage.
            continue
        elif not reader.covers(name, slot, spec.size):
            yield f"has not every element of {what} once"
        elif not slot and spec.size and reader.dtypes[name, ""] != spec.dtype:
            yield f"has {what} as {reader.dtypes[name, '']}, not {spec.dtype}"
