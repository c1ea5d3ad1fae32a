"""What workers kept back is given to those who go on with the job, and not kept longer than anybody may want it."""

from __future__ import annotations

import pytest
from residuals_bed import IMAGE, LAYOUT, Bed, run, values

from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.psserver.residuals import Residuals


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
