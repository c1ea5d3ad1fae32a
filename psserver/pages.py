"""Memory straight from the kernel."""

from __future__ import annotations

import mmap

import numpy as np

from grpc_ps.client.shared.image import Bytes


def paged_buffer(nbytes: int) -> Bytes:
    """Makes a zeroed, writable buffer that begins at a page, and so at a multiple of 64 bytes.

    Pages are taken when they are written to, and given back with the buffer: of memory that the allocator keeps neither
    holds (`process.keep_freed_memory`). For what is large, and mostly not used.

    Raises:
        MemoryError: there is not so much.
    """
    try:
        memory = mmap.mmap(-1, max(nbytes, 1))
    except OSError as error:
        raise MemoryError(f"{nbytes} bytes: {error.strerror}") from error
    return np.frombuffer(memory, np.uint8, nbytes)
