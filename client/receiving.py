"""Values that come in chunks, checked and written where they belong."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from grpc_ps.client.shared.codec import ChunkView
from grpc_ps.client.shared.errors import Corrupt
from grpc_ps.client.shared.image import Buffer, Bytes, Layout, scatter


class Behind(Protocol):
    """Takes what stands behind an image."""

    def take(self, offset: int, data: Buffer) -> None:
        """Takes the bytes from `offset` on, counted from the image's end."""


def take_chunk(
    chunk: ChunkView | None,
    expected: int,
    layout: Layout,
    destinations: Sequence[Bytes],
    address: str,
    *,
    behind: Behind | None = None,
    total: int | None = None,
) -> int:
    """Writes a chunk of the image that has to begin at byte `expected`. Returns where the next one begins.

    Nothing is written of a chunk that is refused: Corrupt, naming the sender's `address`, for one that is damaged, out
    of order, or longer than the image. A message may have none. `behind` takes what follows the image, of which all
    has `total` bytes.
    """
    if chunk is None:
        return expected
    end = expected + len(chunk.data)
    if chunk.offset != expected or end > (total or layout.total_bytes) or not chunk.check():
        raise Corrupt(f"{address}: the chunk at byte {chunk.offset} is damaged or out of order")
    inside = max(0, layout.total_bytes - expected)
    if inside:
        scatter(layout, expected, chunk.data[:inside], destinations)
    if behind is not None and len(chunk.data) > inside:
        behind.take(max(0, expected - layout.total_bytes), chunk.data[inside:])
    return end
