"""Work that is done beside the decisions."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class Background:
    """Coroutines that run by themselves on the event loop, until they end: reading and writing checkpoints, the queue.

    Not guarded: used by the lead's event loop alone.

    Args:
        on_failure: told of each error in one. Nobody awaits them who could be told otherwise.
    """

    def __init__(self, on_failure: Callable[[BaseException], None]) -> None:
        self._on_failure = on_failure
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Has something done."""
        task = asyncio.get_running_loop().create_task(work)
        # The loop itself does not keep a task from being collected.
        self._tasks.add(task)
        task.add_done_callback(self._end)

    def _end(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_failure(error)
