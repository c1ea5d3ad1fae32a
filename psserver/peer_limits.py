"""What one peer, or all who have not shown yet who they are, may ask of a shard."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Any

import grpc
import grpc.aio

from grpc_ps.client.shared.errors import Full

MAX_UNATTACHED = 512
"""Training streams at once that have not attached yet. Each may hold a message, and ends after twice `Limits.call`."""

CALLS_PER_SECOND = 2_000.0
"""Unary calls of one connection, in the long run. Ours beat four times a lease; a loop without a pause makes 1,000."""

CALLS_AT_ONCE = 4_000
"""Unary calls of one connection in a burst."""


class Unattached:
    """Counts the training streams that have not attached. Used by the event loop alone."""

    def __init__(self, limit: int = MAX_UNATTACHED) -> None:
        self._limit = limit
        self.count = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Holds a place for a stream while it attaches. Raises Full if there is none."""
        if self.count >= self._limit:
            raise Full(f"{self.count} training streams have not attached yet: try again")
        self.count += 1
        try:
            yield
        finally:
            self.count -= 1


class Allowances:
    """A token bucket for each connection. Used by the event loop alone.

    A connection that has been quiet for so long that its bucket is full again is forgotten, so memory is bounded by
    the connections that called within the last seconds.
    """

    def __init__(self, per_second: float = CALLS_PER_SECOND, at_once: int = CALLS_AT_ONCE) -> None:
        self._per_second = per_second
        self._at_once = at_once
        # The calls left of each connection, and when that was; the one that has been quiet longest comes first.
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._left)

    def take(self, connection: str, now: float) -> bool:
        """Counts a call; returns whether it is allowed. `now` is in seconds of a clock that never goes back."""
        left, since = self._left.pop(connection, (float(self._at_once), now))
        left = min(self._at_once, left + (now - since) * self._per_second)
        allowed = left >= 1
        self._left[connection] = (left - allowed, now)
        self._forget(now)
        return allowed

    def _forget(self, now: float) -> None:
        full_after = self._at_once / self._per_second
        while now - next(iter(self._left.values()))[1] > full_after:
            self._left.popitem(last=False)


class LimitInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Refuses unary calls of a connection that makes too many. Streams have limits of their own.

    Counted is the connection, not the address: hundreds of workers may share an address, on one machine or behind one
    router, and must not pay for each other. So it stops programs that run wild, not someone who opens connections
    without end; that is a firewall's work.
    """

    def __init__(self, allowances: Allowances, clock: Callable[[], float] = time.monotonic) -> None:
        self._allowances = allowances
        self._clock = clock

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Wraps the handler of a unary call."""
        handler = await continuation(details)
        if handler is None or not handler.unary_unary:
            return handler
        method = handler.unary_unary

        async def call(request: Any, context: Any) -> Any:
            if not self._allowances.take(context.peer(), self._clock()):
                raise Full("too many calls on this connection: call less often")
            return await method(request, context)

        return handler._replace(unary_unary=call)
