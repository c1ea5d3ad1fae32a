"""The values of one position, as they travel."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from google.protobuf.message import Message

from grpc_ps.client.shared.codec import attach_chunk, encode_chunk, encode_message
from grpc_ps.client.shared.image import Layout, chunk_spans, numpy_dtype
from grpc_ps.psserver.finite import all_finite


class Snapshot:
    """A shard's values at one position of the log, kept for as long as anybody sends them.

    Chunks are encoded when they are sent, and once for all where several receivers get this position (`share`).

    Attributes:
        step: the global step of these values.
    """

    def __init__(self, layout: Layout, buffers: Sequence[memoryview], chunk_bytes: int, step: int) -> None:
        """Takes one buffer of bytes for each region of the layout."""
        self.step = step
        self._layout = layout
        self._buffers = buffers
        self._spans = chunk_spans(layout, chunk_bytes)
        self._users = 0
        self._encoded: dict[int, bytes] = {}

    @property
    def total_bytes(self) -> int:
        """Length of the image."""
        return self._layout.total_bytes

    def share(self) -> Snapshot:
        """Notes one more receiver."""
        self._users += 1
        return self

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
            return encode_message(message, offset, self._pieces(offset, nbytes))
        if index not in self._encoded:
            self._encoded[index] = encode_chunk(offset, self._pieces(offset, nbytes))
        return attach_chunk(message, self._encoded[index])

    def _pieces(self, offset: int, nbytes: int) -> list[memoryview]:
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
