"""Turns errors of the tree into gRPC statuses, in one place for all services."""

from __future__ import annotations

import inspect
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import grpc
import grpc.aio

from grpc_ps.client.shared.errors import PsError, trailing_metadata

logger = logging.getLogger(__name__)

Handler = Any


class ErrorInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Sends a `PsError` as its status with its reason; anything else as INTERNAL, without its text, and logs it."""

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
            return handler._replace(unary_stream=_streaming(handler.unary_stream))
        if handler.stream_stream:
            # A handler yields its responses, as reflection's does, or writes them itself, as ours do.
            wrap = _streaming if inspect.isasyncgenfunction(handler.stream_stream) else _whole
            return handler._replace(stream_stream=wrap(handler.stream_stream))
        return handler


def _whole(method: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
    async def call(request: Any, context: Any) -> Any:
        try:
            return await method(request, context)
        except PsError as error:
            await context.abort(error.status, str(error), trailing_metadata(error))
        except Exception as error:
            await _abort_unforeseen(context, error)

    return call


def _streaming(method: Callable[[Any, Any], AsyncIterator[Any]]) -> Callable[[Any, Any], AsyncIterator[Any]]:
    async def call(request: Any, context: Any) -> AsyncIterator[Any]:
        try:
            async for response in method(request, context):
                yield response
        except PsError as error:
            await context.abort(error.status, str(error), trailing_metadata(error))
        except Exception as error:
            await _abort_unforeseen(context, error)

    return call


async def _abort_unforeseen(context: Any, error: Exception) -> None:
    if isinstance(error, grpc.aio.AbortError | grpc.RpcError | grpc.aio.UsageError):
        raise error
    logger.exception("unexpected error in a call")
    await context.abort(grpc.StatusCode.INTERNAL, f"unexpected {type(error).__name__} in the shard; its log has more")
