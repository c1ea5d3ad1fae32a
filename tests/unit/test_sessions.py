"""Answers on their way to a worker: of those with values only the newest waits, and no result is lost."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from grpc_ps.client.answers import Answers
from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.protos.parameter_server_pb2 import Answer, Outcome, PushResult, Release
from grpc_ps.psserver.sessions import OUTBOX, Outgoing, Session

DEADLINE = 20


def run(test: Callable[[Session], Awaitable[None]]) -> None:
    async def with_session() -> None:
        await test(Session(0, 1))

    asyncio.run(asyncio.wait_for(with_session(), DEADLINE))


class Values:
    """Stands for a snapshot."""


def outgoing(position: int, sequence: int = 0, *, release: bool = True) -> Outgoing:
    answer = Answer(position=position)
    if sequence:
        answer.result.CopyFrom(PushResult(sequence=sequence, outcome=Outcome.OUTCOME_APPLIED))
    if release:
        answer.release.CopyFrom(Release(batch=position))
    values: Any = Values() if release else None
    return Outgoing(answer, values)


async def drained(session: Session) -> list[Answer]:
    """Everything that waits."""
    session.send(Outgoing(Answer(position=1000), None))
    answers = []
    while (answer := (await session.next()).answer).position < 1000:
        answers.append(answer)
    return answers


def shown(answers: list[Answer]) -> list[tuple[int, int, bool]]:
    return [(answer.position, answer.result.sequence, answer.HasField("release")) for answer in answers]


def test_a_worker_that_reads_gets_every_answer() -> None:
    async def test(session: Session) -> None:
        for position in range(1, 40):
            session.send(outgoing(position, position))
            assert shown([(await session.next()).answer]) == [(position, position, True)]

    run(test)


def test_one_that_asks_on_without_reading_holds_one_snapshot() -> None:
    async def test(session: Session) -> None:
        held = []
        for position in range(1, 100):
            one = outgoing(position, 5 if position == 1 else 0)
            held.append(weakref.ref(one.snapshot))  # type: ignore[type-var]
            session.send(one)
        del one
        gc.collect()
        assert [ref() is not None for ref in held] == [False] * 98 + [True]
        assert not session.closed.done()
        assert shown(await drained(session)) == [(99, 5, True)]

    run(test)


def test_a_result_without_values_stays_where_it_is() -> None:
    async def test(session: Session) -> None:
        session.send(outgoing(1, 4, release=False))
        session.send(outgoing(2, 5))
        session.send(outgoing(3))
        session.send(outgoing(4, 6, release=False))
        assert shown(await drained(session)) == [(1, 4, False), (3, 5, True), (4, 6, False)]

    run(test)


def test_too_many_answers_end_the_stream() -> None:
    async def test(session: Session) -> None:
        for position in range(OUTBOX):
            session.send(outgoing(position + 1, position + 1, release=False))
        assert not session.closed.done()
        session.send(outgoing(OUTBOX + 1, release=False))
        assert isinstance(session.closed.result(), InvalidPush)

    run(test)


@pytest.mark.parametrize("slow", [0, 1])
def test_the_client_takes_one_position_of_all_shards_though_one_of_them_dropped_an_answer(slow: int) -> None:
    """Shard `slow` was not read for a while: the other one sent position 7 too, with the result."""

    async def test(session: Session) -> None:
        sent = [outgoing(7, 3).answer, outgoing(9).answer]
        for one in (outgoing(7, 3), outgoing(9)):
            session.send(one)
        shards = {slow: await drained(session), 1 - slow: sent}
        answers = Answers(2, awaited=3)
        reply = None
        while reply is None:
            shard = answers.lagging()
            reply = answers.add(shard, shards[shard].pop(0))
        assert (reply.batch, reply.outcome) == (9, "APPLIED")
        assert shards == {0: [], 1: []}

    run(test)
