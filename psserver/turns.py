"""How much of the event loop's time the training streams take at once."""

from __future__ import annotations

import asyncio
from collections import deque

TURNS = 4
"""Messages that are taken while the loop goes round once: each costs up to a millisecond."""


class Turns:
    """Lets so many messages be taken each time the loop goes round; further ones wait, in order, for the next time.

    gRPC takes in one new call each time the loop goes round. With fifty streams at once a round would last as long as
    fifty messages, and heartbeats would wait behind each other for longer than a lease.
    """

    def __init__(self, limit: int = TURNS) -> None:
        self._limit = self._left = limit
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def take(self) -> None:
        """Waits for a turn; not at all where few streams are busy."""
        loop = asyncio.get_running_loop()
        if not self._left:
            turn = loop.create_future()
            self._waiting.append(turn)
            await turn
            return
        if self._left == self._limit:
            loop.call_soon(self._refill)
        self._left -= 1

    def _refill(self) -> None:
        self._left = self._limit
        while self._waiting and self._left:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                self._left -= 1
        if self._left < self._limit:
            asyncio.get_running_loop().call_soon(self._refill)
