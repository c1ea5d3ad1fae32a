"""The log carried out on one shard: means before updates, and reports that never overtake the entries at hand."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from updated_shards import fill, plan_of

from grpc_ps.client.shared.blocks import Block, ParameterSpec
from grpc_ps.client.shared.codec import ChunkView, word_sum
from grpc_ps.client.shared.image import values_layout
from grpc_ps.protos.coordination_pb2 import Reduced, Saved
from grpc_ps.protos.job_pb2 import Identity
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.lead.log import (
    Admit,
    Answer,
    Apply,
    Dismiss,
    Done,
    Open,
    Pin,
    PushId,
    Reduce,
    Release,
    Result,
    Save,
)
from grpc_ps.psserver.replay import INLINE_BYTES, Replay
from grpc_ps.psserver.sessions import Session
from grpc_ps.psserver.store import Store

DEADLINE = 20
# One push of the larger one is over the limit already.
SIZES = {"on-the-loop": 300, "in-the-thread": INLINE_BYTES // 4 + 16}


class Bed:
    """A replay with an open job of one parameter, and two workers that may push."""

    def __init__(self, size: int, kernels: ThreadPoolExecutor) -> None:
        self.reports: list[Reduced] = []
        self.overflows: list[tuple[str, int]] = []
        self.failures: list[BaseException] = []
        self.read: list[int] = []
        self.size = size
        self.position = 0
        self.saved: list[Saved] = []
        store: Future[type[Store]] = Future()
        store.set_result(Store)
        self.replay = Replay(
            shard=0,
            shard_count=1,
            chunk_bytes=8 * size,
            kernels=kernels,
            savers=kernels,
            files=None,
            store_class=store,
            on_overflow=lambda parameter, step: self.overflows.append((parameter, step)),
            on_reduced=self.reports.append,
            on_saved=self.saved.append,
            on_read=self.read.append,
            on_failure=self.failures.append,
        )
        plan = plan_of([ParameterSpec(name="w", shape=(size,), dtype="float32")], clip_norm=1.0)
        self.replay.expect(plan.job)
        for worker in (0, 1):
            assert self.replay.plan is not None
            self.replay.staging.attach(worker, worker + 1, self.replay.plan, self, opening=worker == 0)
            self.deliver(Admit(worker, worker + 1))

    def deliver(self, entry: Any) -> None:
        self.position += 1
        self.replay.deliver(self.position, entry)

    def whole(self, worker: int, sequence: int, value: float, kind: int = PushHeader.KIND_GRADIENTS) -> PushId:
        plan = self.replay.plan
        assert plan is not None
        buffer = np.zeros(plan.gradients.total_bytes, np.uint8)
        fill(plan.gradients, buffer, {"w": np.full(self.size, value, np.float32)})
        header = PushHeader(
            id=Identity(worker=worker, incarnation=worker + 1), sequence=sequence, total_bytes=len(buffer), examples=1
        )
        header.kind = kind  # type: ignore[assignment]
        part = self.replay.staging.begin(header)
        assert part is not None
        part.write(ChunkView(0, word_sum(buffer.data), buffer.data))
        part.finish()
        return PushId(worker, worker + 1, sequence)

    async def settled(self) -> None:
        """Waits until everything that was delivered is carried out."""
        replay = self.replay
        await replay.until(lambda: replay.position == self.position and not replay._backlog._busy, DEADLINE, "the log")
        # Reports are called by the loop, after that.
        await asyncio.sleep(0)

    def values(self) -> list[float]:
        snapshot = self.replay._snapshot
        assert snapshot is not None
        (region,) = snapshot._layout.regions
        ((_, span),) = region.spans()
        return np.unique(np.frombuffer(snapshot._buffers[0], np.float32)[span]).tolist()  # type: ignore[no-any-return]


def run(size: int, test: Callable[[Bed], Awaitable[None]], fails: str = "") -> None:
    """Runs a test on a loop, with the job open at zeros; `fails` is what the shard has to fail with, once."""

    async def opened() -> None:
        with ThreadPoolExecutor(1) as kernels:
            bed = Bed(size, kernels)
            bed.deliver(Open(bed.whole(0, 1, 0.0, PushHeader.KIND_VALUES)))
            await bed.settled()
            await test(bed)
            assert [str(error) for error in bed.failures] == ([fails] if fails else [])

    asyncio.run(asyncio.wait_for(opened(), DEADLINE))


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_a_mean_is_made_once_and_told_until_it_is_applied(size: int) -> None:
    async def test(bed: Bed) -> None:
        pushes = ((bed.whole(0, 2, 2.0), 0.25), (bed.whole(1, 1, 4.0), 0.75))
        bed.deliver(Reduce(pushes))
        # What may stand in between: the reduced pushes are kept.
        bed.deliver(Dismiss(1, 2, keep=1))
        bed.deliver(Answer(0, 1, 0))
        await bed.settled()
        (report,) = bed.reports
        assert (report.position, sum(report.squares)) == (4, size * 3.5**2)
        assert bed.replay.reduced == report
        bed.deliver(Apply(1, pushes, 1.0, (0.5,)))
        await bed.settled()
        assert bed.replay.reduced is None
        assert bed.values() == [-1.75]
        assert bed.replay.staging.all_whole() == []
        # The next round is averaged by the update itself.
        pushes = ((bed.whole(0, 3, 8.0), 1.0),)
        bed.deliver(Apply(2, pushes, 1.0, (0.5,)))
        await bed.settled()
        assert bed.values() == [-5.75]

    run(size, test)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
def test_no_report_comes_within_the_entries_at_hand(size: int) -> None:
    """On shard 0 a report is decided at once: from within `deliver`, its entries would overtake those that wait."""

    async def test(bed: Bed) -> None:
        pushes = ((bed.whole(0, 2, 2.0), 0.5), (bed.whole(1, 1, 4.0), 0.5))
        bed.deliver(Reduce(pushes))
        assert bed.reports == []
        await bed.settled()
        assert len(bed.reports) == 1
        bed.deliver(Apply(1, pushes, 1e39, ()))
        assert bed.overflows == []
        await bed.settled()
        assert bed.overflows == [("w", 1)]
        # Nobody can compute on a result that is not finite.
        session = Session(0, 1)
        bed.replay.sessions.attach(session)
        bed.deliver(Answer(0, 1, 1, Result(2, "APPLIED"), Release(2, 3)))
        await bed.settled()
        bed.deliver(Answer(0, 1, 1, done=Done()))
        assert (await session.next()).answer.HasField("done")

    run(size, test)


def test_a_mean_is_not_applied_as_another_rounds() -> None:
    async def test(bed: Bed) -> None:
        first, second = bed.whole(0, 2, 2.0), bed.whole(1, 1, 4.0)
        bed.deliver(Reduce(((first, 0.5), (second, 0.5))))
        bed.deliver(Apply(1, ((first, 1.0),), 1.0))

    run(300, test, fails="the update to step 1 is of other pushes than the mean that was made for it")


@pytest.mark.parametrize(("size", "threads"), [(SIZES["on-the-loop"], 1), (SIZES["in-the-thread"], 2)], ids=SIZES)
def test_an_update_runs_where_its_size_says(size: int, threads: int) -> None:
    async def test(bed: Bed) -> None:
        ran: set[int] = {threading.get_ident()}
        apply = bed.replay._updates.apply

        def noted(*arguments: Any) -> Any:
            ran.add(threading.get_ident())
            return apply(*arguments)

        bed.replay._updates.apply = noted  # type: ignore[method-assign]
        bed.deliver(Apply(1, ((bed.whole(0, 2, 1.0), 1.0),), 1.0))
        await bed.settled()
        assert len(ran) == threads

    run(size, test)


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


def no_kernel(*arguments: Any) -> Any:
    raise RuntimeError("no kernel")


UNKNOWN = PushId(0, 1, 99)


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize(
    "entry", [Apply(2, ((UNKNOWN, 1.0),), 1.0), Reduce(((UNKNOWN, 1.0),))], ids=["apply", "reduce"]
)
def test_an_entry_that_cannot_be_carried_out_makes_the_shard_useless(size: int, entry: Any) -> None:
    """Wherever it stands: alone, or behind an update in the thread, where no caller would see its error."""

    async def test(bed: Bed) -> None:
        bed.deliver(Apply(1, ((bed.whole(0, 2, 1.0), 1.0),), 1.0))
        bed.deliver(entry)
        await bed.settled()

    run(size, test, fails=f"push {UNKNOWN} is named by the log and not here")


def test_a_report_that_fails_makes_the_shard_useless() -> None:
    async def test(bed: Bed) -> None:
        bed.replay._on_reduced = no_kernel
        bed.deliver(Reduce(((bed.whole(0, 2, 2.0), 0.5), (bed.whole(1, 1, 4.0), 0.5))))
        await bed.settled()

    run(300, test, fails="no kernel")


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
