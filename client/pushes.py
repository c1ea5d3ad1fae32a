"""A push of a worker: what is sent to each shard, and sent again if it did not arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias

from grpc_ps.client.feedback import Feedback
from grpc_ps.client.parameters import ShardImages, block_buffers
from grpc_ps.client.row_traffic import Tail
from grpc_ps.client.shared.codec import attach_chunk, encode_message
from grpc_ps.client.shared.image import Buffer, Extent, Layout, chunk_spans, gather
from grpc_ps.protos import parameter_server_pb2 as wire

Pieces: TypeAlias = Callable[[int, int], Sequence[Buffer]]
"""Gives a range of an image, by offset and length, in pieces."""


@dataclass(frozen=True)
class Push:
    """A push that is not decided yet: its header, and the bytes of the whole tensors by name.

    `feedback` makes of gradients what is sent of them; None where they are sent as they are. `tails` stand behind the
    images, one a shard; None in a job without tables.
    """

    header: wire.PushHeader
    flat: Mapping[str, memoryview]
    feedback: Feedback | None = None
    tails: Sequence[Tail] | None = None

    def messages(self, shard: int, images: ShardImages, chunk_bytes: int) -> Iterator[bytes]:
        """Encodes one shard's part, a message at a time as they are asked for. Again it has the same bytes."""
        values = self.header.kind == wire.PushHeader.KIND_VALUES
        layout = images.values if values else images.gradients
        header = wire.PushHeader()
        header.CopyFrom(self.header)
        if self.feedback is not None and not values:
            part = self.feedback.part(shard, self.flat, chunk_bytes)
            header.total_bytes = part.total_bytes
            return self._behind(shard, header, part, part.pieces, chunk_bytes)
        header.total_bytes = layout.total_bytes
        buffers = block_buffers(layout, self.flat)
        return self._behind(shard, header, layout, partial(gather, layout, buffers=buffers), chunk_bytes)

    def _behind(
        self, shard: int, header: wire.PushHeader, image: Extent, pieces: Pieces, chunk_bytes: int
    ) -> Iterator[bytes]:
        """Encodes an image with what stands behind it."""
        if self.tails is None:
            return _messages(header, chunk_spans(image, chunk_bytes), pieces)
        tail, border = self.tails[shard], image.total_bytes

        def both(offset: int, nbytes: int) -> Sequence[Buffer]:
            inside = min(nbytes, max(0, border - offset))
            first = pieces(offset, inside) if inside else ()
            return [*first, *tail.pieces(max(0, offset - border), nbytes - inside)] if nbytes > inside else first

        tail.mark(header)
        return _messages(header, chunk_spans(_Length(header.total_bytes), chunk_bytes), both)

    def decided(self, outcome: str | None) -> bool:
        """Takes what became of it; what the model has not got goes with the next push. Whether it was of gradients."""
        gradients = self.header.kind == wire.PushHeader.KIND_GRADIENTS
        if gradients and self.feedback is not None and outcome == "APPLIED":
            self.feedback.keep()
        return gradients


@dataclass(frozen=True)
class _Length:
    total_bytes: int


def push_messages(
    header: wire.PushHeader, layout: Layout, chunk_bytes: int, buffers: Sequence[Buffer]
) -> Iterator[bytes]:
    """Encodes a push to one shard; `buffers` has the bytes of each block of the layout."""
    spans = chunk_spans(layout, chunk_bytes)
    return _messages(header, spans, lambda offset, nbytes: gather(layout, offset, nbytes, buffers))


def _messages(header: wire.PushHeader, spans: Sequence[tuple[int, int]], pieces: Pieces) -> Iterator[bytes]:
    message = wire.PushPullRequest(header=header)
    if not spans:
        message.end = True
        yield attach_chunk(message, None)
    for number, (offset, nbytes) in enumerate(spans, 1):
        message.end = number == len(spans)
        yield encode_message(message, offset, pieces(offset, nbytes))
        message = wire.PushPullRequest()
