"""What a worker keeps back of its pushes, on its way in."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from grpc_ps.client.shared.codec import ChunkView
from grpc_ps.client.shared.errors import Corrupt, InvalidPush
from grpc_ps.client.shared.image import Bytes
from grpc_ps.psserver.finite import all_finite


class ResidualPart:
    """What one worker keeps back of this shard's blocks: an image of float32, taken chunk after chunk.

    Attributes:
        dropped: nobody waits for it any more.
        buffer: the image.

    Args:
        size: bytes of the image, zero for a worker that keeps nothing back.
        done: called when it is whole.
    """

    def __init__(self, worker: int, size: int, buffer: Bytes, done: Callable[[], None]) -> None:
        self.dropped = False
        self.buffer = buffer
        self._worker = worker
        self._size = size
        self._done = done
        self._received = 0

    def write(self, chunk: ChunkView) -> None:
        """Takes the next chunk.

        Raises:
            InvalidPush: for a gap, a repetition, bytes beyond the image, or a number that is not finite.
            Corrupt: for a chunk whose sum is wrong.
        """
        start, end = chunk.offset, chunk.offset + len(chunk.data)
        if start != self._received or start == end or end > self._size:
            raise InvalidPush(
                f"{self}: a chunk of {len(chunk.data)} bytes at {start}, expected one at {self._received}"
            )
        if not chunk.check():
            raise Corrupt(f"{self}: the sum of the chunk at {start} is wrong")
        data = np.frombuffer(chunk.data, np.uint8)
        if not all_finite(data.view(np.float32)):
            raise InvalidPush(f"{self}: it has infinite numbers or NaN")
        self.buffer[start:end] = data
        self._received = end

    def finish(self) -> None:
        """Declares it whole. Raises InvalidPush if bytes are missing."""
        if self._received != self._size:
            raise InvalidPush(f"{self}: ended after {self._received} of {self._size} bytes")
        self._done()

    def __str__(self) -> str:
        return f"what worker {self._worker} keeps back"
