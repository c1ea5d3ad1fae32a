"""The values of one position, as they travel."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence

import numpy as np
from google.protobuf.message import Message

from grpc_ps.client.shared.codec import attach_chunk, encode_chunk, encode_message
from grpc_ps.client.shared.image import Buffer, Bytes, Layout, chunk_spans, numpy_dtype
from grpc_ps.client.shared.narrow_image import narrow_range
from grpc_ps.protos.parameter_server_pb2 import PushPullResponse
from grpc_ps.psserver.finite import all_finite


class Outbound(ABC):
    """Bytes of one position of the log, on their way to a receiver or to several.

    Chunks are encoded when they are sent, and once for all where there are several receivers.

    Attributes:
        total_bytes: how many.
        step: the global step that they are of.
        rows: how many rows of each table are at the end; empty where none were asked for.
    """

    rows: tuple[int, ...] = ()

    def __init__(self, total_bytes: int, chunk_bytes: int, step: int) -> None:
        """Takes the length, the largest chunk, and the step."""
        self.total_bytes = total_bytes
        self.step = step
        self._spans = chunk_spans(self, chunk_bytes)
        self._users = 0
        self._encoded: dict[int, bytes] = {}

    @abstractmethod
    def pieces(self, offset: int, nbytes: int) -> list[Buffer]:
        """A range of the bytes, in pieces."""

    def messages(self, head: Message, more: type[Message]) -> Iterator[bytes]:
        """Yields the messages that carry this image: `head` with the first chunk, then `more` messages.

        Both have fields `chunk` and `end`; the last message has `end` set.
        """
        if not self._spans:
            head.end = True  # type: ignore[attr-defined]
            yield attach_chunk(head, None)
        for index in range(len(self._spans)):
            message = head if index == 0 else more()
            message.end = index == len(self._spans) - 1  # type: ignore[attr-defined]
            yield self._message(message, index)

    def _message(self, message: Message, index: int) -> bytes:
        offset, nbytes = self._spans[index]
        if self._users < 2:
            return encode_message(message, offset, self.pieces(offset, nbytes))
        if index not in self._encoded:
            self._encoded[index] = encode_chunk(offset, self.pieces(offset, nbytes))
        return attach_chunk(message, self._encoded[index])


class Snapshot(Outbound):
    """A shard's values at one position of the log, kept for as long as anybody sends them."""

    def __init__(
        self, layout: Layout, buffers: Sequence[memoryview], chunk_bytes: int, step: int, released: Layout | None = None
    ) -> None:
        """Takes one buffer of bytes for each region of the layout; `released` is how workers get it, if otherwise."""
        super().__init__(layout.total_bytes, chunk_bytes, step)
        self._chunk_bytes = chunk_bytes
        self._released = released
        self._release: Snapshot | None = None
        self._layout = layout
        self._buffers = buffers

    @property
    def release(self) -> Snapshot:
        """The same values in the form in which workers get them."""
        if self._released is None or self._released is self._layout:
            return self
        if self._release is None:
            self._release = _Rounded(self._layout, self._released, self._buffers, self._chunk_bytes, self.step)
        return self._release

    def share(self) -> Snapshot:
        """Notes one more receiver."""
        self._users += 1
        return self

    def pieces(self, offset: int, nbytes: int) -> list[Buffer]:
        """A range of the image, in pieces. Nothing is copied."""
        end = offset + nbytes
        return [
            buffer[max(offset - region.offset, 0) : end - region.offset]
            for region, buffer in zip(self._layout.regions, self._buffers, strict=True)
            if region.offset < end and offset < region.offset + region.nbytes
        ]

    def non_finite(self) -> str:
        """Returns the name of a parameter with a NaN or an infinity, or nothing."""
        for region, buffer in zip(self._layout.regions, self._buffers, strict=True):
            if region.floating:
                values = np.frombuffer(buffer, numpy_dtype(region.dtype))
                if not all_finite(values):
                    return next((block.parameter for block, at in region.spans() if not all_finite(values[at])), "")
        return ""


class _Rounded(Snapshot):
    """The same with float32 rounded, a chunk at a time when it is sent."""

    def __init__(
        self, layout: Layout, released: Layout, buffers: Sequence[memoryview], chunk_bytes: int, step: int
    ) -> None:
        super().__init__(released, buffers, chunk_bytes, step)
        blocks = [
            buffer[start : start + block.nbytes]
            for region, buffer in zip(layout.regions, buffers, strict=True)
            for block, start in zip(region.blocks, region.starts, strict=True)
        ]
        self._sources = [
            np.frombuffer(data, np.uint8 if block.dtype == narrow.dtype else np.float32)
            for data, block, narrow in zip(blocks, layout.blocks, released.blocks, strict=True)
        ]

    def pieces(self, offset: int, nbytes: int) -> list[Buffer]:
        """A range of the image, rounded."""
        out = np.empty(nbytes, np.uint8)
        narrow_range(self._layout, offset, out, self._sources)
        return [out.data]


class WithRows(Outbound):
    """A release with rows of tables behind the image, for one worker."""

    def __init__(self, image: Snapshot, rows: Bytes, counts: tuple[int, ...], chunk_bytes: int) -> None:
        super().__init__(image.total_bytes + len(rows), chunk_bytes, image.step)
        self.rows = counts
        self._image = image
        self._behind = rows.data

    def pieces(self, offset: int, nbytes: int) -> list[Buffer]:
        """A range of the image and the rows. Nothing is copied."""
        border = self._image.total_bytes
        inside = min(nbytes, max(0, border - offset))
        pieces = self._image.pieces(offset, inside) if inside else []
        if nbytes > inside:
            start = max(0, offset - border)
            pieces = [*pieces, self._behind[start : start + nbytes - inside]]
        return pieces


def image_messages(layout: Layout, buffer: Bytes, chunk_bytes: int) -> Iterator[bytes]:
    """Yields the messages of a training stream that carry an image in memory; the last has `end` set."""
    spans = chunk_spans(layout, chunk_bytes)
    for number, (offset, nbytes) in enumerate(spans, 1):
        message = PushPullResponse(end=number == len(spans))
        yield encode_message(message, offset, [buffer[offset : offset + nbytes].data])
