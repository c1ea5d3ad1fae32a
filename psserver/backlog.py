"""Entries of the log that wait for their turn."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Any, TypeVar

from grpc_ps.client.shared.errors import PeerLost
from grpc_ps.psserver.aio import within
from grpc_ps.psserver.lead.log import Answer, Dismiss, Entry, Stop

T = TypeVar("T")


class Backlog:
    """Carries out entries one after the other; those behind work that runs in `kernels` wait for it.

    Not guarded: used by the event loop alone. What is still under way when the backlog is `cleared` comes to nothing.

    Attributes:
        delivered: position of the last entry taken; `position` of the last one carried out.

    Args:
        carry_out: does what an entry says.
        kernels: where large updates run, one thread.
        on_failure: told of each error in carrying out an entry, wherever it arises. From then on only entries are
            carried out that tell workers of an end.
    """

    def __init__(
        self,
        carry_out: Callable[[Entry], None],
        kernels: Executor,
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.delivered = 0
        self.position = 0
        self._carry_out = carry_out
        self._kernels = kernels
        self._on_failure = on_failure
        self._changed = asyncio.Event()
        self._entries: deque[tuple[int, Entry]] = deque()
        self._busy = False
        self._failed = False
        self._life = 0

    def clear(self) -> None:
        """Begins with another log, from its first entry on."""
        self._life += 1
        self._entries.clear()
        self.delivered = self.position = 0
        self._busy = False

    def deliver(self, position: int, entry: Entry) -> None:
        """Carries out the next entry, now or when those before it are. Never raises: see `on_failure`."""
        self.delivered = position
        self._entries.append((position, entry))
        self._work()

    def _work(self) -> None:
        while self._entries and not self._busy:
            self.position, entry = self._entries.popleft()
            if not self._failed or _ends(entry):
                self._guarded(self._carry_out, entry)
        self._changed.set()
        self._changed = asyncio.Event()

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Waits until entries have made `condition` true; PeerLost after `seconds`."""

        async def met() -> None:
            while not condition():
                await self._changed.wait()

        try:
            await within(seconds, met())
        except TimeoutError:
            raise PeerLost(f"{what} did not happen within {seconds:g} s") from None

    def _guarded(self, work: Callable[..., None], *what: Any) -> None:
        """Does a piece of carrying out an entry. An error of any kind is told: what follows would be built on it."""
        try:
            work(*what)
        except Exception as error:
            self._failed = True
            self._on_failure(error)

    def later(self, report: Callable[..., None], *what: Any) -> None:
        """Reports after the entries at hand: what the lead makes of it comes behind them."""
        asyncio.get_running_loop().call_soon(self._in_life, self._life, report, *what)

    def _in_life(self, life: int, work: Callable[..., None], *what: Any) -> None:
        if life == self._life:
            self._guarded(work, *what)

    def in_kernels(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Runs work of the entry at hand in the thread, then `then` with what it returned."""
        life = self._life
        future = asyncio.get_running_loop().run_in_executor(self._kernels, work)
        self._busy = True
        future.add_done_callback(lambda done: self._resume(life, then, done))

    def beside(self, executor: Executor, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Runs work in that executor beside the entries that follow, then `then` with what it returned."""
        life = self._life
        future = asyncio.get_running_loop().run_in_executor(executor, work)
        future.add_done_callback(
            lambda done: None if done.cancelled() else self._in_life(life, lambda: then(done.result()))
        )

    def _resume(self, life: int, then: Callable[[T], None], future: asyncio.Future[T]) -> None:
        if future.cancelled() or life != self._life:
            return
        self._busy = False
        self._guarded(lambda: then(future.result()))
        self._work()


def _ends(entry: Entry) -> bool:
    """Whether an entry only tells somebody of an end: of the job, or of a worker's part in it."""
    return isinstance(entry, Dismiss | Stop) or (isinstance(entry, Answer) and entry.done is not None)
