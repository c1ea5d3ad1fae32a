"""One push's part on this shard, on its way in."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.codec import ChunkView
from grpc_ps.client.shared.errors import Corrupt, InvalidPush
from grpc_ps.client.shared.image import ALIGNMENT, Bytes, Layout, block_views, gaps, region_views
from grpc_ps.protos.coordination_pb2 import Whole
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.finite import first_non_finite, probably_finite
from grpc_ps.psserver.row_gradients import squares_of_tables
from grpc_ps.psserver.squares import Span, Squares
from grpc_ps.psserver.tail import Tail, Wanted
from grpc_ps.psserver.unpacking import Unpacking

Array = npt.NDArray[Any]


class Image:
    """A push's image in memory, made once a place and filled anew by each push.

    Attributes:
        blocks, regions: one typed, flat view per block, and per region.
        operands: what the store made of the blocks, None before it did; it stays valid, for the memory is the same.
        squares: the sums of what is there of the push that fills it, where the job clips by a norm.
        unpacking: what fills it, where a push travels in another form; `wire_bytes` are those of that form.
        tail: what stands behind it, in a job with tables; `sums_rows` asks for the squares of that too.
    """

    def __init__(
        self,
        layout: Layout,
        buffer: Bytes,
        squared: Sequence[Span] = (),
        unpacking: Unpacking | None = None,
        tail: Tail | None = None,
        *,
        sums_rows: bool = False,
    ) -> None:
        self.layout = layout
        self.tail = tail
        self.sums_rows = sums_rows
        self.unpacking = unpacking
        self.wire_bytes = layout.total_bytes if unpacking is None else unpacking.total_bytes
        self.buffer = buffer
        self.blocks: Sequence[Array] = block_views(layout, buffer)
        self.regions: Sequence[Array] = region_views(layout, buffer)
        self.operands: Any = None
        self.squares = Squares(squared, buffer) if squared else None
        self._gaps = gaps(layout)
        uniform = all(block.dtype == "float32" for block in layout.blocks)
        self._numbers: Array | None = buffer.view(np.float32) if uniform else None

    @property
    def nbytes(self) -> int:
        """Bytes of the image and of the rows behind it."""
        return len(self.buffer) + (self.tail.nbytes if self.tail is not None else 0)

    def gaps_are_zero(self) -> bool:
        """Whether nothing stands between the blocks: updates take regions as they are."""
        return not self.buffer[self._gaps].any()

    def fill(self, start: int, data: memoryview) -> int:
        """Takes a push's next bytes, those from `start`; returns up to which byte the image is filled."""
        if self.unpacking is not None:
            return self.unpacking.take(start, data)
        end = start + len(data)
        self.buffer[start:end] = np.frombuffer(data, np.uint8)
        return end

    def looks_finite(self, start: int, stop: int) -> bool:
        """Whether bytes `start` to `stop` are surely finite; False asks for a closer look."""
        if self._numbers is None:
            return False
        with np.errstate(over="ignore", invalid="ignore"):
            return probably_finite(self._numbers[start // 4 : stop // 4])


class Part:
    """One push's image on this shard, filled chunk by chunk in order.

    Each chunk is tested for finiteness, and squared where the job clips by a norm, while it is still in the cache.

    Attributes:
        total_bytes: of all that belongs to it.
        whole: the report, once all bytes are there.
        dropped: it is of no interest any more, whole or not; its memory may be another's.
    """

    def __init__(self, header: PushHeader, image: Image, chunk_bytes: int) -> None:
        self.header = header
        self._chunk_bytes = chunk_bytes
        self.image = image
        self.whole: Whole | None = None
        self.dropped = False
        self._received = 0
        self._filled = 0
        self._suspect = False
        tail = image.tail.begin(header, str(self)) if image.tail is not None else 0
        self.total_bytes = image.wire_bytes + tail
        if image.squares is not None:
            image.squares.restart()

    @property
    def wanted(self) -> Wanted | None:
        """Rows of tables that its worker wants, once it is whole; None if it names none."""
        return self.image.tail.wanted if self.image.tail is not None else None

    def write(self, chunk: ChunkView) -> None:
        """Takes the next chunk.

        Raises:
            InvalidPush: for a gap, a repetition or bytes beyond the image.
            Corrupt: for a chunk whose sum is wrong.
        """
        start, end, total = chunk.offset, chunk.offset + len(chunk.data), self.total_bytes
        if start != self._received or start == end:
            got = f"a chunk of {len(chunk.data)} bytes at {start}"
            raise InvalidPush(f"{self}: {got}, expected one at {self._received}")
        if end > total:
            raise InvalidPush(f"{self}: bytes up to {end}, the image has {total}")
        check_length(self, chunk, self._chunk_bytes)
        if not chunk.check():
            raise Corrupt(f"{self}: the sum of the chunk at {start} is wrong")
        self._received = end
        self._take(start, chunk.data)

    def _take(self, start: int, data: memoryview) -> None:
        """Takes the next bytes: of the image, and then of what is behind it."""
        inside = max(0, self.image.wire_bytes - start)
        if inside:
            self._look(self.image.fill(start, data[:inside]))
        if self.image.tail is not None and len(data) > inside:
            self.image.tail.take(max(0, start - self.image.wire_bytes), data[inside:])

    def _look(self, filled: int) -> None:
        """Looks at what the image has got, up to byte `filled`."""
        start, self._filled = self._filled, filled
        if self.header.kind == PushHeader.KIND_GRADIENTS:
            self._suspect = self._suspect or not self.image.looks_finite(start, filled)
        if self.image.squares is not None:
            self.image.squares.advance(filled)

    def finish(self) -> Whole:
        """Declares the part whole.

        Raises:
            InvalidPush: if bytes are missing, there are some between blocks, or they do not mean a gradient.
        """
        image = self.image
        if self._received != self.total_bytes:
            raise InvalidPush(f"{self}: ended after {self._received} of {self.total_bytes} bytes")
        if image.unpacking is not None:
            if problem := image.unpacking.finish():
                raise InvalidPush(f"{self}: {problem}")
            self._look(image.layout.total_bytes)
        if not image.gaps_are_zero():
            raise InvalidPush(f"{self}: the bytes between two blocks must be zero")
        non_finite = first_non_finite(image.layout, image.blocks) if self._suspect else ""
        report = Whole(header=self.header, non_finite=non_finite)
        if image.squares is not None:
            report.squares.extend(image.squares.sums)
        if image.tail is not None:
            self._finish_tail(image.tail, report)
        self.whole = report
        return report

    def _finish_tail(self, tail: Tail, report: Whole) -> None:
        if problem := tail.finish():
            raise InvalidPush(f"{self}: {problem}")
        if tail.non_finite:
            report.non_finite = min(filter(None, (report.non_finite, tail.non_finite)))
        if self.image.sums_rows:
            report.squares.extend(squares_of_tables(tail.rows))

    def __str__(self) -> str:
        return f"push {self.header.sequence} of worker {self.header.id.worker}"


def check_length(of: object, chunk: ChunkView, most: int) -> None:
    """Refuses a chunk, of whatever image, that is longer than `most` bytes or no multiple of the alignment.

    Raises:
        InvalidPush: naming what it is of, and the rule.
    """
    if len(chunk.data) > most or len(chunk.data) % ALIGNMENT:
        rule = f"a multiple of {ALIGNMENT}, at most {most}"
        raise InvalidPush(f"{of}: a chunk of {len(chunk.data)} bytes must be {rule}")
