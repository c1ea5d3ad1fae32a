"""Pushes on their way in: nothing is visible before it is whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.codec import ChunkView
from grpc_ps.client.shared.errors import Corrupt, InvalidPush
from grpc_ps.client.shared.image import ALIGNMENT, Bytes, Layout, aligned_buffer, block_views
from grpc_ps.protos.coordination_pb2 import Whole
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.finite import first_non_finite, probably_finite

Array = npt.NDArray[Any]
Key = tuple[int, int, int]


def key_of(header: PushHeader) -> Key:
    """Names a push: worker, incarnation, sequence."""
    return header.id.worker, header.id.incarnation, header.sequence


class Image:
    """A push's image in memory, made once a place and filled anew by each push.

    Attributes:
        blocks: one typed, flat view per block.
        operands: what the store made of the blocks, None before it did; it stays valid, for the memory is the same.
    """

    def __init__(self, layout: Layout, buffer: Bytes) -> None:
        self.layout = layout
        self.buffer = buffer
        self.blocks: Sequence[Array] = block_views(layout, buffer)
        self.operands: Any = None
        uniform = all(block.dtype == "float32" for block in layout.blocks)
        self._numbers: Array | None = buffer.view(np.float32) if uniform else None

    def looks_finite(self, start: int, stop: int) -> bool:
        """Whether bytes `start` to `stop` are surely finite; False asks for a closer look."""
        if self._numbers is None:
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return probably_finite(self._numbers[start // 4 : stop // 4])


class Part:
    """One push's image on this shard, filled chunk by chunk in order.

    Each chunk is tested for finiteness while it is still in the cache.
    """

    def __init__(self, header: PushHeader, image: Image, chunk_bytes: int) -> None:
        self.header = header
        self._chunk_bytes = chunk_bytes
        self.image = image
        self.whole: Whole | None = None
        self._received = 0
        self._suspect = False

    def write(self, chunk: ChunkView) -> None:
        """Takes the next chunk.

        Raises:
            InvalidPush: for a gap, a repetition or bytes beyond the image.
            Corrupt: for a chunk whose sum is wrong.
        """
        start, end, total = chunk.offset, chunk.offset + len(chunk.data), self.image.layout.total_bytes
        if start != self._received or start == end:
            got = f"a chunk of {len(chunk.data)} bytes at {start}"
            raise InvalidPush(f"{self}: {got}, expected one at {self._received}")
        if end > total:
            raise InvalidPush(f"{self}: bytes up to {end}, the image has {total}")
        if len(chunk.data) > self._chunk_bytes or len(chunk.data) % ALIGNMENT:
            rule = f"a multiple of {ALIGNMENT}, at most {self._chunk_bytes}"
            raise InvalidPush(f"{self}: a chunk of {len(chunk.data)} bytes must be {rule}")
        if not chunk.check():
            raise Corrupt(f"{self}: the sum of the chunk at {start} is wrong")
        self.image.buffer[start:end] = np.frombuffer(chunk.data, np.uint8)
        self._received = end
        if self.header.kind == PushHeader.KIND_GRADIENTS:
            self._suspect = self._suspect or not self.image.looks_finite(start, end)

    def finish(self) -> Whole:
        """Declares the part whole.

        Raises:
            InvalidPush: if bytes are missing.
        """
        image = self.image
        if self._received != image.layout.total_bytes:
            raise InvalidPush(f"{self}: ended after {self._received} of {image.layout.total_bytes} bytes")
        non_finite = first_non_finite(image.layout, image.blocks) if self._suspect else ""
        self.whole = Whole(header=self.header, non_finite=non_finite)
        return self.whole

    def __str__(self) -> str:
        return f"push {self.header.sequence} of worker {self.header.id.worker}"


@dataclass(slots=True)
class _Place:
    """A worker's place: its memory, reused from push to push, and the part in it."""

    image: Image
    part: Part | None = None


class Staging:
    """The parts of all workers, one a worker. Not guarded: used by the event loop alone.

    A push that an entry has named stays known as decided, so that one sent again over a new stream is not taken anew.
    """

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._places: dict[int, _Place] = {}
        self._decided: dict[int, tuple[int, int]] = {}

    def begin(self, header: PushHeader, layout: Layout) -> Part | None:
        """Makes room for a push; None if this very push is here whole already, or decided.

        Raises:
            InvalidPush: if the length is not the image's, the number does not follow the last one, or another push of
                that worker is whole and undecided.
        """
        if header.total_bytes != layout.total_bytes:
            raise InvalidPush(
                f"push {header.sequence} of worker {header.id.worker}: {header.total_bytes} bytes declared, "
                f"the image has {layout.total_bytes}"
            )
        worker, incarnation, sequence = key_of(header)
        if sequence and (incarnation, sequence) <= self._decided.get(worker, (0, 0)):
            return None
        place = self._place(worker, layout)
        if place.part is not None and place.part.whole is not None:
            if key_of(place.part.header) == key_of(header):
                return None
            raise InvalidPush(f"{place.part} is not decided yet")
        expected = self.held(worker, incarnation) + 1
        if sequence != expected:
            raise InvalidPush(f"push {sequence} of worker {worker}: expected number {expected}")
        place.part = Part(header, place.image, self._chunk_bytes)
        return place.part

    def _place(self, worker: int, layout: Layout) -> _Place:
        place = self._places.get(worker)
        if place is None or place.image.layout is not layout:
            place = self._places[worker] = _Place(Image(layout, aligned_buffer(layout.total_bytes)))
        return place

    def whole(self, key: Key) -> Part | None:
        """The part of that push, if it is here whole."""
        place = self._places.get(key[0])
        part = place.part if place else None
        return part if part is not None and part.whole is not None and key_of(part.header) == key else None

    def held(self, worker: int, incarnation: int) -> int:
        """Sequence of the last push of that life that is here whole, decided or not; 0 if none."""
        place = self._places.get(worker)
        part = place.part if place else None
        if part is not None and part.whole is not None and part.header.id.incarnation == incarnation:
            return part.header.sequence
        last_life, sequence = self._decided.get(worker, (0, 0))
        return sequence if last_life == incarnation else 0

    def all_whole(self) -> list[Whole]:
        """Every part that is here whole."""
        parts = (place.part for place in self._places.values())
        return [part.whole for part in parts if part is not None and part.whole is not None]

    def drop(self, worker: int, incarnation: int, keep: int = 0) -> None:
        """Forgets what that life pushed and frees its memory, but for push `keep`."""
        place = self._places.get(worker)
        part = place.part if place else None
        if place is None or (part is not None and part.header.id.incarnation != incarnation):
            return
        if keep and part is not None and part.whole is not None and part.header.sequence == keep:
            return
        del self._places[worker]

    def abandon(self, worker: int, incarnation: int) -> None:
        """Frees what that life was in the middle of sending; what is whole stays."""
        place = self._places.get(worker)
        if place is not None and (place.part is None or place.part.whole is None):
            self.drop(worker, incarnation)

    def forget(self, key: Key) -> None:
        """Notes that an entry has named a push; its place is free."""
        worker, *push = key
        self._decided[worker] = max(self._decided.get(worker, (0, 0)), (push[0], push[1]))
        if self.whole(key) is not None:
            self._places[key[0]].part = None

    def bytes(self) -> int:
        """Memory of all places."""
        return sum(len(place.image.buffer) for place in self._places.values())
