"""Registers our services on a server and decodes their requests, in one place.

gRPC gets no deserializers: where one of them raises, the caller is told UNKNOWN or INTERNAL, and the log has a
traceback. Here bytes that are no such message are refused with USAGE, like everything else that a caller does wrong.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import MethodDescriptor, ServiceDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.psserver.aio import EOF

Behavior = Callable[[Any, Any], Awaitable[Any]]
Decoder = Callable[[Any], Message]


def add_service(
    server: grpc.aio.Server, descriptor: ServiceDescriptor, service: object, raw: Collection[str] = ()
) -> None:
    """Registers every method that the descriptor names; `service` has one of the same name for each.

    Args:
        raw: methods whose messages stay bytes in both directions, for protobuf would copy their chunks.
    """
    handlers = {
        method.name: _handler(method, getattr(service, method.name), method.name in raw)
        for method in descriptor.methods
    }
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(descriptor.full_name, handlers),))


def _handler(method: MethodDescriptor, behavior: Any, raw: bool) -> grpc.RpcMethodHandler[Any, Any]:
    make: Any
    if method.client_streaming:
        make, wrap = grpc.stream_stream_rpc_method_handler, _reading
    elif method.server_streaming:
        make, wrap = grpc.unary_stream_rpc_method_handler, None
    else:
        make, wrap = grpc.unary_unary_rpc_method_handler, _taking
    handler: grpc.RpcMethodHandler[Any, Any]
    if raw:
        handler = make(behavior)
        return handler
    if wrap is None:
        raise LookupError(f"{method.full_name}: a method that only its responses stream decodes its request itself")
    decode = decoder(GetMessageClass(method.input_type))
    handler = make(wrap(behavior, decode), response_serializer=GetMessageClass(method.output_type).SerializeToString)
    return handler


def decoder(cls: type[Message]) -> Decoder:
    """Returns what parses that message; UsageError for bytes that are none."""

    def decode(data: Any) -> Message:
        try:
            return cls.FromString(data)
        except DecodeError as error:
            raise UsageError(f"not a {cls.DESCRIPTOR.name}: {error}") from error

    return decode


def _taking(behavior: Behavior, decode: Decoder) -> Behavior:
    async def call(data: Any, context: Any) -> Any:
        return await behavior(decode(data), context)

    return call


def _reading(behavior: Behavior, decode: Decoder) -> Behavior:
    async def call(requests: Any, context: Any) -> Any:
        return await behavior(requests, _DecodingContext(context, decode))

    return call


class _DecodingContext:
    """A stream's context whose `read` returns messages."""

    def __init__(self, context: Any, decode: Decoder) -> None:
        self._context = context
        self._decode = decode

    async def read(self) -> Any:
        """The next message, or EOF."""
        data = await self._context.read()
        return data if data is EOF else self._decode(data)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)
