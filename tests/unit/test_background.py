"""Work beside the lead's decisions."""

from __future__ import annotations

import asyncio

from grpc_ps.psserver.background import Background


def test_an_error_is_told_and_other_ends_are_not() -> None:
    told: list[BaseException] = []
    done = []

    async def fail() -> None:
        raise LookupError("no folder")

    async def work(event: asyncio.Event) -> None:
        await event.wait()
        done.append("worked")

    async def wait() -> None:
        await asyncio.Event().wait()

    async def run() -> None:
        background, event = Background(told.append), asyncio.Event()
        background.start(work(event))
        background.start(fail())
        background.start(wait())
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        assert len(tasks) == 3
        await asyncio.sleep(0)
        assert not done, "it is not waited for"
        event.set()
        next(task for task in tasks if "wait" in repr(task.get_coro())).cancel()
        await asyncio.wait(tasks)

    asyncio.run(run())
    assert done == ["worked"]
    assert [(type(error), str(error)) for error in told] == [(LookupError, "no folder")]
