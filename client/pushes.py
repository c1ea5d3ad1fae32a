"""A push of a worker: what is sent to each shard, and sent again if it did not arrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from grpc_ps.client.parameters import ShardImages, block_buffers
from grpc_ps.client.shared.codec import attach_chunk, encode_message
from grpc_ps.client.shared.image import Buffer, Layout, chunk_spans, gather
from grpc_ps.protos import parameter_server_pb2 as wire


@dataclass(frozen=True)
class Push:
    """A push that is not decided yet: its header, and the bytes of the whole tensors by name."""

    header: wire.PushHeader
    flat: Mapping[str, memoryview]

    def messages(self, images: ShardImages, chunk_bytes: int) -> Iterator[bytes]:
        """Encodes one shard's part, a message at a time as they are asked for."""
        values = self.header.kind == wire.PushHeader.KIND_VALUES
        layout = images.values if values else images.gradients
        header = wire.PushHeader()
        header.CopyFrom(self.header)
        header.total_bytes = layout.total_bytes
        return push_messages(header, layout, chunk_bytes, block_buffers(layout, self.flat))


def push_messages(
    header: wire.PushHeader, layout: Layout, chunk_bytes: int, buffers: Sequence[Buffer]
) -> Iterator[bytes]:
    """Encodes a push to one shard; `buffers` has the bytes of each block of the layout."""
    message = wire.PushPullRequest(header=header)
    spans = chunk_spans(layout, chunk_bytes)
    if not spans:
        message.end = True
        yield attach_chunk(message, None)
    for number, (offset, nbytes) in enumerate(spans, 1):
        message.end = number == len(spans)
        yield encode_message(message, offset, gather(layout, offset, nbytes, buffers))
        message = wire.PushPullRequest()
