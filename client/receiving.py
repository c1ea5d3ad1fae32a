"""Values that come in chunks, checked and written where they belong."""

from __future__ import annotations

from collections.abc import Sequence

from grpc_ps.client.shared.codec import ChunkView
from grpc_ps.client.shared.errors import Corrupt
from grpc_ps.client.shared.image import Bytes, Layout, scatter


def take_chunk(
    chunk: ChunkView | None, expected: int, layout: Layout, destinations: Sequence[Bytes], address: str
) -> int:
    """Writes a chunk of the image that has to begin at byte `expected`. Returns where the next one begins.

    Nothing is written of a chunk that is refused: Corrupt, naming the sender's `address`, for one that is damaged, out
    of order, or longer than the image. A message may have none.
    """
    if chunk is None:
        return expected
    end = expected + len(chunk.data)
    if chunk.offset != expected or end > layout.total_bytes or not chunk.check():
        raise Corrupt(f"{address}: the chunk at byte {chunk.offset} is damaged or out of order")
    scatter(layout, expected, chunk.data, destinations)
    return end
