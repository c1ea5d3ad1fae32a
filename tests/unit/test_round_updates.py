"""Rounds on one shard: means before updates, and reports that never overtake the entries at hand."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from replay_bed import SIZES, Bed, no_kernel, run

from grpc_ps.psserver.lead.log import Answer, Apply, Dismiss, Done, PushId, Reduce, Release, Result
from grpc_ps.psserver.sessions import Session

UNKNOWN = PushId(0, 1, 99)


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
        bed.replay._rounds._on_reduced = no_kernel
        bed.deliver(Reduce(((bed.whole(0, 2, 2.0), 0.5), (bed.whole(1, 1, 4.0), 0.5))))
        await bed.settled()

    run(300, test, fails="no kernel")
