"""Waits of a shard: time in which the process stands still is not held against others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import pytest

from grpc_ps.psserver.aio import SLICE, within


def stand_still(then: Callable[[], None]) -> None:
    """Blocks the loop for longer than a slice, as an import does; what follows could have come long before."""
    time.sleep(1.5 * SLICE)
    asyncio.get_running_loop().call_soon(then)


def test_what_came_while_the_process_stood_still_is_in_time() -> None:
    async def wait() -> bool:
        came = asyncio.Event()
        asyncio.get_running_loop().call_soon(stand_still, came.set)
        return await within(1.2 * SLICE, came.wait())

    assert asyncio.run(wait()) is True


def test_a_wait_ends_and_what_it_waited_for_is_given_up() -> None:
    async def wait() -> bool:
        never = asyncio.get_running_loop().create_future()
        with pytest.raises(TimeoutError):
            await within(0.01, never)
        return never.cancelled()

    assert asyncio.run(wait())


def test_an_error_and_a_cancellation_pass_through() -> None:
    async def fail() -> None:
        raise LookupError("gone")

    async def wait() -> None:
        with pytest.raises(LookupError, match="gone"):
            await within(1.0, fail())
        never = asyncio.get_running_loop().create_future()
        waiting = asyncio.create_task(within(30.0, never))
        await asyncio.sleep(0)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert never.cancelled()

    asyncio.run(wait())
