"""Who is asked for what it keeps back, what is taken of it, and whom nobody waits for."""

from __future__ import annotations

import numpy as np
import pytest
from residuals_bed import IMAGE, LAYOUT, POSITION, STEP, Bed, request, run, values

from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.protos.parameter_server_pb2 import Answer


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


def test_what_is_not_of_that_checkpoint_is_refused_or_of_no_interest() -> None:
    async def test() -> None:
        bed = Bed()
        bed.residuals.decided(0, 1, 2, applied=True)
        bed.gather()
        with pytest.raises(InvalidPush, match="worker 0 keeps back 64 bytes, not 192"):
            bed.residuals.receive(bed.header(0, 1, size=64))
        assert bed.residuals.receive(bed.header(0, 1, position=6)) is None
        assert bed.written == []

    run(test)
