"""The log carried out on one shard: what tells workers and readers, and what a failure leaves of it."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from replay_bed import SIZES, Bed, no_kernel, run
from updated_shards import plan_of

from grpc_ps.client.shared.blocks import Block, ParameterSpec
from grpc_ps.client.shared.image import values_layout
from grpc_ps.protos.job_pb2 import Identity
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.lead.log import Answer, Apply, Dismiss, Done, Pin, Release, Result, Save
from grpc_ps.psserver.sessions import Session


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_kernel_that_fails_makes_the_shard_useless(size: int) -> None:
    """Nothing is built on it; but that the job is over reaches the workers still."""

    async def test(bed: Bed) -> None:
        session = Session(0, 1)
        bed.replay.sessions.attach(session)
        bed.replay._updates.apply = no_kernel  # type: ignore[method-assign]
        bed.deliver(Apply(1, ((bed.whole(0, 2, 1.0), 1.0),), 1.0))
        bed.deliver(Answer(0, 1, 1, Result(2, "APPLIED"), Release(2, 3)))
        bed.deliver(Apply(2, ((bed.whole(1, 1, 1.0), 1.0),), 1.0))
        await bed.settled()
        bed.deliver(Answer(0, 1, 1, done=Done(4, "shard 0 failed")))
        assert (await session.next()).answer.done.exit_code == 4

    run(size, test, fails="no kernel")


def test_a_snapshot_is_let_go_of_when_it_was_read_or_its_time_is_over() -> None:
    async def test(bed: Bed) -> None:
        pins = bed.replay.pins
        bed.deliver(Pin(7, 0, 60_000))
        bed.deliver(Pin(8, 0, 0))  # over at once
        assert (len(pins), pins.get(7) is not None) == (2, True)
        pins.drop(9)
        pins.drop(7)
        pins.drop(7)
        over = asyncio.Event()
        # Timers go off in the order of their times.
        asyncio.get_running_loop().call_later(0.01, over.set)
        await over.wait()
        assert (len(pins), bed.read) == (0, [7])

    run(300, test)


def test_an_answer_drops_a_push_in_its_middle() -> None:
    async def test(bed: Bed) -> None:
        assert bed.replay.plan is not None
        header = PushHeader(
            id=Identity(worker=1, incarnation=2),
            sequence=1,
            kind=PushHeader.KIND_GRADIENTS,
            total_bytes=bed.replay.plan.gradients.total_bytes,
        )
        before = bed.replay.staging.bytes()
        part = bed.replay.staging.begin(header)
        assert part is not None
        bed.deliver(Answer(1, 2, 0, Result(1, "LATE"), Release(5, 6)))
        assert part.dropped
        assert bed.replay.staging.held(1, 2) == 1
        assert bed.replay.staging.bytes() == before
        bed.deliver(Dismiss(1, 2))
        assert bed.replay.staging.bytes() < before

    run(300, test)


def test_what_was_restored_is_kept_for_those_who_are_admitted() -> None:
    async def test(bed: Bed) -> None:
        residuals, layout = bed.replay.residuals, values_layout([Block("w", 0, 3, "float32", True)])
        residuals.open(layout, dict.fromkeys((0, 1, 5), np.zeros(layout.total_bytes, np.uint8)), places=64)
        bed.deliver(Dismiss(1, 2))
        for step in (1, 2):
            bed.deliver(Save("folder", step, 0))
        await bed.settled()
        assert [worker for worker in range(6) if residuals.restored(worker)] == [0]

    run(300, test)


@pytest.mark.parametrize(("mode", "places"), [("sync", 5), ("async", 7)])
def test_a_plan_knows_how_many_workers_there_may_be(mode: str, places: int) -> None:
    parameters = [ParameterSpec(name="w", shape=(3,), dtype="float32")]
    assert plan_of(parameters, mode=mode, workers=3, backup=2, max_workers=7).places == places
