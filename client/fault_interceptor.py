"""Makes the faults of `--fault` happen to the calls that a worker makes."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

import grpc

from grpc_ps.client.shared.faults import Faults

# Seconds for gRPC to return the call of which it already sends.
_OPENING_SECONDS = 10.0


class LostCall(grpc.RpcError):
    """Looks like a call to a shard that is gone."""

    def __init__(self, call: str) -> None:
        super().__init__(call)
        self._call = call

    def code(self) -> grpc.StatusCode:
        """As gRPC has it for a link that broke."""
        return grpc.StatusCode.UNAVAILABLE

    def details(self) -> str:
        """Names the call and the reason."""
        return f"{self._call} was lost by --fault"


class FaultInterceptor(
    grpc.UnaryUnaryClientInterceptor,  # type: ignore[type-arg]  # not generic at run time
    grpc.UnaryStreamClientInterceptor,  # type: ignore[type-arg]
    grpc.StreamStreamClientInterceptor,  # type: ignore[type-arg]
):
    """A call's faults are as on a shard (`psserver/fault_interceptor.py`); a stream's are those of what it sends.

    What comes in on a stream is not touched: for that there are the shard's own faults.
    """

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def intercept_unary_unary(self, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        """Makes one call, perhaps late, twice or in vain."""
        call, faults = _name(details), self._faults
        self._open(call)
        if faults.strike("duplicate", call):
            with suppress(grpc.RpcError):
                continuation(details, request).result()
        if faults.strike("drop-answer", call):
            with suppress(grpc.RpcError):
                continuation(details, request).result()
            raise LostCall(call)
        return continuation(details, request)

    def intercept_unary_stream(self, continuation: Callable[[Any, Any], Any], details: Any, request: Any) -> Any:
        """Opens a stream of answers."""
        self._open(_name(details))
        return continuation(details, request)

    def intercept_stream_stream(self, continuation: Callable[[Any, Any], Any], details: Any, requests: Any) -> Any:
        """Opens a stream whose messages meet the faults."""
        name = _name(details)
        if not self._faults.names(name):
            return continuation(details, requests)
        self._open(name)
        # gRPC's thread asks for messages before there is the call that a cut ends.
        opened: Future[Any] = Future()
        opened.set_result(continuation(details, self._messages(name, requests, opened)))
        return opened.result()

    def _open(self, call: str) -> None:
        time.sleep(self._faults.delay(call))
        if self._faults.strike("drop", call):
            raise LostCall(call)

    def _messages(self, call: str, requests: Iterator[Any], opened: Future[Any]) -> Iterator[Any]:
        for message in requests:
            time.sleep(self._faults.delay(call))
            if self._faults.strike("cut", call):
                opened.result(_OPENING_SECONDS).cancel()
                return
            yield message


def _name(details: Any) -> str:
    return str(details.method).rpartition("/")[2]
