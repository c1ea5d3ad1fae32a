"""A push of a worker: what is sent to each shard, and sent again if it did not arrive."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from grpc_ps.client.feedback import Feedback
from grpc_ps.client.parameters import ShardImages, block_buffers
from grpc_ps.client.shared.codec import attach_chunk, encode_message
from grpc_ps.client.shared.image import Buffer, Layout, chunk_spans, gather
from grpc_ps.protos import parameter_server_pb2 as wire


@dataclass(frozen=True)
class Push:
    """A push that is not decided yet: its header, and the bytes of the whole tensors by name.

    `feedback` makes of gradients what is sent of them; None where they are sent as they are.
    """

    header: wire.PushHeader
    flat: Mapping[str, memoryview]
    feedback: Feedback | None = None

    def messages(self, shard: int, images: ShardImages, chunk_bytes: int) -> Iterator[bytes]:
        """Encodes one shard's part, a message at a time as they are asked for. Again it has the same bytes."""
        values = self.header.kind == wire.PushHeader.KIND_VALUES
        layout = images.values if values else images.gradients
        header = wire.PushHeader()
        header.CopyFrom(self.header)
        if self.feedback is not None and not values:
            part = self.feedback.part(shard, self.flat, chunk_bytes)
            header.total_bytes = part.total_bytes
            return _messages(header, chunk_spans(part, chunk_bytes), part.pieces)
        header.total_bytes = layout.total_bytes
        return push_messages(header, layout, chunk_bytes, block_buffers(layout, self.flat))

    def decided(self, outcome: str | None) -> bool:
        """Takes what became of it; what the model has not got goes with the next push. Whether it was of gradients."""
        gradients = self.header.kind == wire.PushHeader.KIND_GRADIENTS
        if gradients and self.feedback is not None and outcome == "APPLIED":
            self.feedback.keep()
        return gradients


def push_messages(
    header: wire.PushHeader, layout: Layout, chunk_bytes: int, buffers: Sequence[Buffer]
) -> Iterator[bytes]:
    """Encodes a push to one shard; `buffers` has the bytes of each block of the layout."""
    spans = chunk_spans(layout, chunk_bytes)
    return _messages(header, spans, lambda offset, nbytes: gather(layout, offset, nbytes, buffers))


def _messages(
    header: wire.PushHeader, spans: Sequence[tuple[int, int]], pieces: Callable[[int, int], Sequence[Buffer]]
) -> Iterator[bytes]:
    message = wire.PushPullRequest(header=header)
    if not spans:
        message.end = True
        yield attach_chunk(message, None)
    for number, (offset, nbytes) in enumerate(spans, 1):
        message.end = number == len(spans)
        yield encode_message(message, offset, pieces(offset, nbytes))
        message = wire.PushPullRequest()
