"""Makes the faults of `--fault` happen to the calls that this shard serves."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from typing import Any

import grpc
import grpc.aio

from grpc_ps.client.shared.errors import PsError
from grpc_ps.client.shared.faults import Faults
from grpc_ps.psserver.aio import EOF

_OURS = "/grpc_ps."


class _Cut(Exception):
    """A stream ends here."""


class FaultInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """The innermost interceptor: a call that it drops looks like one of a shard that is gone, with UNAVAILABLE.

    A call's faults, in this order: delay; drop, before it is carried out; duplicate, the answer is the second one's;
    drop-answer. A stream's: drop, when it opens; then at each message delay and cut, and at each that goes out
    drop-answer, which ends the stream too, since of a connection only the rest can be lost.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Wraps the handler of one call, if a fault names it."""
        handler: Any = await continuation(details)
        method: Any = details.method
        service, _, call = method.rpartition("/")
        if handler is None or not service.startswith(_OURS) or not self._faults.names(call):
            return handler
        if handler.unary_unary:
            return handler._replace(unary_unary=self._call(call, handler.unary_unary))
        if handler.unary_stream:
            return handler._replace(unary_stream=self._download(call, handler.unary_stream))
        if handler.stream_stream:
            return handler._replace(stream_stream=self._stream(call, handler.stream_stream))
        return handler

    def _call(self, call: str, method: Callable[[Any, Any], Awaitable[Any]]) -> Callable[[Any, Any], Awaitable[Any]]:
        faults = self._faults

        async def served(request: Any, context: Any) -> Any:
            await asyncio.sleep(faults.delay(call))
            if faults.strike("drop", call):
                await _lose(context, call)
            if faults.strike("duplicate", call):
                # As over a network, what the first one is refused with does not reach anybody.
                with suppress(PsError):
                    await method(request, context)
            if faults.strike("drop-answer", call):
                with suppress(PsError):
                    await method(request, context)
                await _lose(context, call)
            return await method(request, context)

        return served

    def _stream(
        self, call: str, method: Callable[[Any, Any], Awaitable[None]]
    ) -> Callable[[Any, Any], Awaitable[None]]:
        async def served(requests: Any, context: Any) -> None:
            if self._faults.strike("drop", call):
                await _lose(context, call)
            try:
                await method(requests, _FaultyContext(context, self._faults, call))
            except _Cut:
                await _lose(context, call)

        return served

    def _download(
        self, call: str, method: Callable[[Any, Any], AsyncIterator[Any]]
    ) -> Callable[[Any, Any], AsyncIterator[Any]]:
        async def served(request: Any, context: Any) -> AsyncIterator[Any]:
            if self._faults.strike("drop", call):
                await _lose(context, call)
            try:
                async for response in method(request, context):
                    await _message(self._faults, call, out=True)
                    yield response
            except _Cut:
                await _lose(context, call)

        return served


class _FaultyContext:
    """A stream's context whose messages meet the faults; all else is the context's own."""

    def __init__(self, context: Any, faults: Faults, call: str) -> None:
        self._context = context
        self._faults = faults
        self._call = call

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def read(self) -> Any:
        """Reads a message, which may be late, or the last one."""
        message = await self._context.read()
        if message is not EOF:
            await _message(self._faults, self._call, out=False)
        return message

    async def write(self, message: Any) -> None:
        """Writes a message, late, or not at all."""
        await _message(self._faults, self._call, out=True)
        await self._context.write(message)


async def _message(faults: Faults, call: str, *, out: bool) -> None:
    await asyncio.sleep(faults.delay(call))
    if faults.strike("cut", call) or (out and faults.strike("drop-answer", call)):
        raise _Cut


async def _lose(context: Any, call: str) -> None:
    await context.abort(grpc.StatusCode.UNAVAILABLE, f"{call} was lost by --fault")
