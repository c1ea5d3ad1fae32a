"""What grpc.aio has and its type stubs lack."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from grpc_ps.client.shared.errors import UsageError

EOF: Any = grpc.aio.EOF  # type: ignore[attr-defined]
"""What `read` returns when the other side has ended its stream."""

FIRST_MESSAGE_SECONDS = 10.0


async def first_message(context: Any) -> Any:
    """Reads the first message of a stream; UsageError for a caller that says nothing."""
    try:
        return await asyncio.wait_for(context.read(), FIRST_MESSAGE_SECONDS)
    except asyncio.TimeoutError:
        raise UsageError(f"the stream began with {FIRST_MESSAGE_SECONDS:g} s of silence") from None
