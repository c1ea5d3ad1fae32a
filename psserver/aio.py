"""What grpc.aio has and its type stubs lack."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

import grpc.aio

from grpc_ps.client.shared.errors import UsageError

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
"""What `read` returns when the other side has ended its stream."""


T = TypeVar("T")
SLICE = 0.5
"""Seconds of a wait that count at once."""


async def within(seconds: float, work: Awaitable[T]) -> T:
    """Waits for `work` for so long, in slices: one in which this process stands still counts no more than another.

    Where it does (importing TensorFlow on a busy machine, stopped by a signal) what is awaited may have come long ago
    and not been looked at. Raises TimeoutError.
    """
    task = asyncio.ensure_future(work)
    try:
        left = seconds
        while not task.done():
            if left <= 0:
                raise TimeoutError
            await asyncio.wait((task,), timeout=min(left, SLICE))
            left -= SLICE
        return task.result()
    finally:
        task.cancel()


async def first_message(context: Any, seconds: float) -> Any:
    """Reads the first message of a stream; UsageError for a caller that says nothing for so long."""
    try:
        return await within(seconds, context.read())
    except TimeoutError:
        raise UsageError(f"the stream began with {seconds:g} s of silence") from None
