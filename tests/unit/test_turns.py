"""However many streams are busy, the event loop goes round often enough for calls."""

from __future__ import annotations

import asyncio

from grpc_ps.psserver.turns import Turns


def taken(streams: int, limit: int) -> list[tuple[int, int]]:
    """(round of the loop, stream) of each message, in order, where all streams have one at the same moment."""

    async def main() -> list[tuple[int, int]]:
        turns, found, rounds = Turns(limit), [], 0

        def count() -> None:
            nonlocal rounds
            rounds += 1
            if len(found) < streams:
                loop.call_soon(count)

        async def stream(number: int) -> None:
            await turns.take()
            found.append((rounds, number))

        loop = asyncio.get_running_loop()
        tasks = [loop.create_task(stream(number)) for number in range(streams)]
        loop.call_soon(count)
        await asyncio.gather(*tasks)
        return found

    return asyncio.run(main())


def test_few_streams_do_not_wait() -> None:
    assert taken(4, limit=4) == [(0, 0), (0, 1), (0, 2), (0, 3)]


def test_many_streams_take_turns_in_order() -> None:
    found = taken(50, limit=4)
    assert [number for _, number in found] == list(range(50))
    for round_ in {round_ for round_, _ in found}:
        assert sum(at == round_ for at, _ in found) <= 4
