"""Turns errors of the tree into gRPC statuses, in one place for all services."""

from __future__ import annotations

import asyncio
import inspect
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Any

import grpc
import grpc.aio

from grpc_ps.client.shared.errors import PeerLost, PsError, trailing_metadata

logger = logging.getLogger(__name__)

Handler = Any

MAX_TEXT = 600
"""Characters of a refusal's text: it travels as metadata, of which gRPC takes 8 KiB, in up to 12 bytes each."""


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Sends a `PsError` as its status with its reason; anything else as INTERNAL, without its text, and logs it.

    Args:
        patience: seconds that a response of a stream waits for its reader to take it.
    """

    def __init__(self, patience: float) -> None:
        self._patience = patience

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Handler]], details: grpc.HandlerCallDetails
    ) -> Handler:
        """Wraps the handler of one call."""
        handler = await continuation(details)
        if handler is None:
            return None
        if handler.unary_unary:
            return handler._replace(unary_unary=_whole(handler.unary_unary))
        if handler.unary_stream:
            return handler._replace(unary_stream=_streaming(handler.unary_stream, self._patience))
        if handler.stream_stream:
            # A handler yields its responses, as reflection's does, or writes them itself, as ours do.
            if inspect.isasyncgenfunction(handler.stream_stream):
                return handler._replace(stream_stream=_streaming(handler.stream_stream, self._patience))
            return handler._replace(stream_stream=_whole(handler.stream_stream))
        return handler


def _whole(method: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def call(request: Any, context: Any) -> Any:
        try:
            return await method(request, context)
        except PsError as error:
            await context.abort(error.status, _text(error), trailing_metadata(error))
        except Exception as error:
            await _abort_unforeseen(context, error)

    return call


def _streaming(
    method: Callable[[Any, Any], AsyncGenerator[Any, None]], seconds: float
) -> Callable[[Any, Any], Awaitable[None]]:
    """Writes what the method yields, itself: so a failure to write is seen here, too, and the wait for it ends.

    A caller that takes nothing would keep in memory what it was to read, for as long as it likes.
    """

    async def call(request: Any, context: Any) -> None:
        try:
            async with aclosing(method(request, context)) as responses:
                async for response in responses:
                    await asyncio.wait_for(context.write(response), seconds)
        except asyncio.TimeoutError:
            error = PeerLost(f"the caller took nothing for {seconds:g} s")
            await context.abort(error.status, str(error), trailing_metadata(error))
        except PsError as error:
            await context.abort(error.status, _text(error), trailing_metadata(error))
        except Exception as error:
            await _abort_unforeseen(context, error)

    return call


def _text(error: PsError) -> str:
    """The error's text, the middle of which is left out where a caller's values made it too long to send."""
    text, half = str(error), MAX_TEXT // 2
    return text if len(text) <= MAX_TEXT else f"{text[:half]}...{text[-half:]}"


async def _abort_unforeseen(context: Any, error: Exception) -> None:
    if isinstance(error, grpc.aio.AbortError | grpc.RpcError | grpc.aio.UsageError):
        raise error
    if isinstance(error, grpc.aio.InternalError):
        # gRPC could not read or write: the caller has gone. It logs a traceback for that, unless the call is cancelled.
        raise asyncio.CancelledError from error
    logger.exception("unexpected error in a call")
    await context.abort(grpc.StatusCode.INTERNAL, f"unexpected {type(error).__name__} in the shard; its log has more")
