"""Who is asked for what it keeps back, what is taken of it, and whom nobody waits for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
import pytest

from grpc_ps.client.shared.blocks import Block
from grpc_ps.client.shared.codec import ChunkView, word_sum
from grpc_ps.client.shared.errors import Corrupt, InvalidPush
from grpc_ps.client.shared.image import values_layout
from grpc_ps.protos.job_pb2 import Identity
from grpc_ps.protos.parameter_server_pb2 import Answer, PushHeader, ResidualRequest
from grpc_ps.psserver.residuals import Kept, Residuals

LAYOUT = values_layout([Block("a", 0, 20, "float32", True), Block("b", 0, 3, "float32", True)])
IMAGE = np.full(LAYOUT.total_bytes // 4, 2, np.float32).view(np.uint8)
POSITION, STEP = 7, 3


class Bed:
    """Residuals of a job, with what they ask for and what is to be written."""

    def __init__(self, patience: float = 60.0) -> None:
        self.residuals = Residuals()
        self.residuals.open(LAYOUT, {}, (0, 1, 1), places=8)
        self.patience = patience
        self.asked: list[tuple[int, int, Answer]] = []
        self.written: list[Kept] = []
        self.done = asyncio.Event()

    def gather(self) -> None:
        self.residuals.gather(POSITION, STEP, self.patience, lambda *what: self.asked.append(what), self._then)

    def _then(self, kept: Kept) -> None:
        self.written.append(kept)
        self.done.set()

    def header(self, worker: int, incarnation: int, *, position: int = POSITION, size: int | None = None) -> PushHeader:
        return PushHeader(
            id=Identity(worker=worker, incarnation=incarnation),
            kind=PushHeader.KIND_RESIDUAL,
            position=position,
            total_bytes=LAYOUT.total_bytes if size is None else size,
        )

    def send(self, worker: int, incarnation: int, value: float) -> None:
        part = self.residuals.receive(self.header(worker, incarnation))
        assert part is not None
        for offset in range(0, LAYOUT.total_bytes, 64):
            part.write(chunk(offset, value))
        part.finish()


def chunk(offset: int, value: float) -> ChunkView:
    data = np.full(16, value, np.float32).tobytes()
    return ChunkView(offset, word_sum(data), memoryview(data))


def request(applied: int) -> Answer:
    wanted = ResidualRequest(position=POSITION, applied=applied)
    return Answer(position=POSITION, global_step=STEP, residual=wanted)


def run(test: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(test(), 20))


def values(kept: Kept) -> dict[str, list[float]]:
    return {piece.key: sorted(set(np.frombuffer(data, np.float32).tolist())) for piece, data in kept}


def test_nobody_is_asked_before_a_push_is_decided() -> None:
    async def test() -> None:
        bed = Bed()
        # The first values are a push that leaves nothing.
        bed.residuals.decided(0, 1, 1, applied=True)
        bed.gather()
        assert (bed.asked, bed.written) == ([], [[]])

    run(test)


def test_all_that_have_pushed_are_asked_and_waited_for() -> None:
    async def test() -> None:
        bed = Bed()
        bed.residuals.decided(0, 1, 2, applied=True)
        bed.residuals.decided(1, 2, 1, applied=True)
        bed.residuals.decided(1, 2, 2, applied=False)
        bed.gather()
        assert {(worker, incarnation): answer for worker, incarnation, answer in bed.asked} == {
            (0, 1): request(2),
            (1, 2): request(1),
        }
        assert bed.residuals.request(1, 2) == request(1)
        assert bed.residuals.request(1, 1) is None
        bed.send(1, 2, 0.5)
        assert bed.written == []
        # On another stream it is told the position all the same: another shard may not have what it wants.
        assert bed.residuals.request(1, 2) == Answer(position=POSITION, global_step=STEP)
        bed.send(0, 1, 0.25)
        assert values(bed.written[0]) == {
            "slots/residual.0/a[0:20]": [0.25],
            "slots/residual.0/b[0:3]": [0.25],
            "slots/residual.1/a[0:20]": [0.5],
            "slots/residual.1/b[0:3]": [0.5],
        }
        # What comes once more is of no interest.
        assert bed.residuals.receive(bed.header(0, 1)) is None

    run(test)


def test_a_worker_that_is_gone_is_not_waited_for() -> None:
    async def test() -> None:
        bed = Bed()
        for worker in (0, 1, 2):
            bed.residuals.decided(worker, worker + 1, 2, applied=True)
        bed.residuals.dismiss(0, 1)
        bed.gather()
        assert [worker for worker, _, _ in bed.asked] == [1, 2]
        part = bed.residuals.receive(bed.header(1, 2))
        assert part is not None
        bed.residuals.dismiss(1, 2)
        assert part.dropped
        bed.send(2, 3, 1.0)
        assert {piece.slot for piece, _ in bed.written[0]} == {"residual.2"}

    run(test)


def test_one_that_does_not_answer_is_named_and_left_out(caplog: pytest.LogCaptureFixture) -> None:
    async def test() -> None:
        bed = Bed(patience=0.01)
        bed.residuals.decided(3, 1, 2, applied=True)
        bed.gather()
        await bed.done.wait()
        assert bed.written == [[]]
        assert bed.residuals.receive(bed.header(3, 1)) is None

    with caplog.at_level("WARNING", "grpc_ps.psserver.residuals"):
        run(test)
    (record,) = caplog.records
    assert record.getMessage().startswith('residuals_missing workers=3 why="no answer within ')


def test_a_shard_that_is_about_to_end_waits_no_longer_than_it_may(caplog: pytest.LogCaptureFixture) -> None:
    """Neither for what it has asked for already, nor for what it asks for then."""

    async def test() -> None:
        bed = Bed(patience=3600.0)
        bed.residuals.decided(3, 1, 2, applied=True)
        bed.gather()
        bed.residuals.hurry(0.01)
        await bed.done.wait()
        bed.done.clear()
        bed.gather()
        await bed.done.wait()
        assert bed.written == [[], []]

    with caplog.at_level("WARNING", "grpc_ps.psserver.residuals"):
        run(test)
    assert len(caplog.records) == 2


def test_a_life_that_is_over_is_asked_for_nothing_whatever_becomes_of_its_last_push() -> None:
    async def test() -> None:
        bed = Bed()
        bed.residuals.open(LAYOUT, {1: IMAGE}, places=2)
        bed.residuals.decided(0, 1, 2, applied=True)
        for worker, incarnation in ((0, 1), (1, 2)):
            # Its push is whole, and in a round.
            bed.residuals.dismiss(worker, incarnation)
            bed.residuals.decided(worker, incarnation, 3, applied=True)
        bed.gather()
        assert (bed.asked, bed.written) == ([], [[]])
        # The next life of that index has nothing of it, and is asked as all are.
        assert bed.residuals.restored(1) is None
        bed.residuals.decided(0, 3, 1, applied=True)
        bed.gather()
        assert [(worker, incarnation) for worker, incarnation, _ in bed.asked] == [(0, 3)]

    run(test)


def test_what_there_is_no_memory_for_is_named_and_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def test() -> None:
        bed = Bed()
        bed.residuals.decided(0, 1, 2, applied=True)
        bed.residuals.decided(3, 1, 2, applied=True)
        bed.gather()
        with monkeypatch.context() as patch:
            patch.setattr(np, "empty", no_memory)
            assert bed.residuals.receive(bed.header(3, 1)) is None
        bed.send(0, 1, 1.0)
        assert {piece.slot for piece, _ in bed.written[0]} == {"residual.0"}

    with caplog.at_level("WARNING", "grpc_ps.psserver.residuals"):
        run(test)
    assert [record.getMessage() for record in caplog.records] == [
        'residuals_missing workers=3 why="no memory for 192 bytes"'
    ]


def no_memory(*arguments: object) -> None:
    raise MemoryError


def test_what_was_restored_of_workers_that_the_job_has_not_is_dropped(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", "grpc_ps.psserver.residuals"):
        residuals = Residuals()
        residuals.open(LAYOUT, {1: IMAGE, 2: IMAGE, 11: IMAGE}, places=2)
    assert [residuals.restored(worker) is None for worker in (1, 2, 11)] == [False, True, True]
    assert [record.getMessage() for record in caplog.records] == [
        'residuals_dropped workers=2,11 why="the job has no such worker"'
    ]


def test_what_was_restored_and_nobody_came_for_is_not_in_the_second_checkpoint(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Of workers that are here it is kept: they may just not have pushed yet."""

    async def test() -> None:
        bed = Bed()
        bed.residuals.open(LAYOUT, {0: IMAGE, 1: IMAGE, 2: IMAGE}, places=3)
        bed.residuals.admit(0, 1)
        bed.residuals.admit(1, 2)
        for step in (5, 5, 6):
            bed.residuals.saving(step)
            bed.gather()
            # It left before it had pushed.
            bed.residuals.dismiss(1, 2)
        saved = [{piece.slot for piece, _ in kept} for kept in bed.written]
        everything = {"residual.0", "residual.1", "residual.2"}
        # Step 5 could not be written at first: that is one checkpoint.
        assert saved == [everything, everything, {"residual.0"}]

    with caplog.at_level("INFO", "grpc_ps.psserver.residuals"):
        run(test)
    assert [record.getMessage() for record in caplog.records] == [
        'residuals_dropped workers=1,2 why="nobody came for it"'
    ]


def test_what_was_restored_is_kept_until_a_push_is_decided() -> None:
    async def test() -> None:
        bed = Bed()
        bed.residuals.open(LAYOUT, {0: IMAGE, 4: IMAGE}, places=5)
        assert bed.residuals.restored(4) == (LAYOUT, IMAGE)
        assert bed.residuals.restored(1) is None
        bed.residuals.decided(0, 1, 1, applied=False)
        assert bed.residuals.restored(0) is None
        bed.gather()
        # Worker 4 has not come yet: what it will get is what it keeps back.
        assert [(worker, request.residual.applied) for worker, _, request in bed.asked] == [(0, 0)]
        bed.send(0, 1, 3.0)
        assert values(bed.written[0])["slots/residual.4/b[0:3]"] == [2]
        assert values(bed.written[0])["slots/residual.0/b[0:3]"] == [3]

    run(test)


def test_another_life_of_an_index_begins_with_nothing() -> None:
    async def test() -> None:
        bed = Bed()
        bed.residuals.decided(0, 1, 5, applied=True)
        bed.residuals.decided(0, 2, 1, applied=False)
        bed.gather()
        assert [(i, request.residual.applied) for _, i, request in bed.asked] == [(2, 0)]

    run(test)


def test_another_generation_forgets_everything() -> None:
    async def test() -> None:
        bed = Bed()
        bed.residuals.decided(0, 1, 2, applied=True)
        bed.gather()
        part = bed.residuals.receive(bed.header(0, 1))
        assert part is not None
        assert bed.residuals.clear()
        assert part.dropped
        assert not bed.residuals.clear()
        assert bed.written == []
        with pytest.raises(InvalidPush, match="worker 0 keeps nothing back in this job"):
            bed.residuals.receive(bed.header(0, 1))

    run(test)


def test_a_worker_may_say_that_it_keeps_nothing() -> None:
    async def test() -> None:
        bed = Bed()
        bed.residuals.decided(0, 1, 2, applied=True)
        bed.gather()
        part = bed.residuals.receive(bed.header(0, 1, size=0))
        assert part is not None
        part.finish()
        assert bed.written == [[]]

    run(test)


def test_what_is_not_the_image_is_refused() -> None:
    async def test() -> None:
        bed = Bed()
        bed.residuals.decided(0, 1, 2, applied=True)
        bed.gather()
        with pytest.raises(InvalidPush, match="worker 0 keeps back 64 bytes, not 192"):
            bed.residuals.receive(bed.header(0, 1, size=64))
        assert bed.residuals.receive(bed.header(0, 1, position=6)) is None
        part = bed.residuals.receive(bed.header(0, 1))
        assert part is not None
        with pytest.raises(InvalidPush, match="at 64, expected one at 0"):
            part.write(chunk(64, 1.0))
        with pytest.raises(InvalidPush, match="infinite numbers or NaN"):
            part.write(chunk(0, np.nan))
        with pytest.raises(Corrupt, match="the sum of the chunk at 0 is wrong"):
            part.write(ChunkView(0, 1, chunk(0, 1.0).data))
        part.write(chunk(0, 1.0))
        with pytest.raises(InvalidPush, match="ended after 64 of 192 bytes"):
            part.finish()
        assert bed.written == []

    run(test)
