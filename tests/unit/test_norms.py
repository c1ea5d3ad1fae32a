"""The norm of a round: known at once for one push, found by all shards for several."""

from __future__ import annotations

from grpc_ps.psserver.lead.clipping import Clipping
from grpc_ps.psserver.lead.log import Log, PushId, Reduce
from grpc_ps.psserver.lead.norms import Norms
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.settings import complete

ONE, TWO = (Push(PushId(worker, 1 + worker, 1), base_step=0, batch=worker, examples=1) for worker in range(2))


def norms(**settings: float) -> tuple[Norms, Log]:
    log = Log()
    return Norms(Clipping(complete(settings), parameters=1), 2, log), log


def test_without_a_limit_there_is_nothing_to_find_out() -> None:
    found, log = norms()
    found.note(ONE.id, ((0, 25.0),))
    assert found.scales([ONE, TWO]) == ()
    assert log.position == 0


def test_a_round_of_one_has_its_norm_in_its_report() -> None:
    found, log = norms(global_clip_norm=1.0)
    found.note(ONE.id, ((0, 9.0), (0, 7.0)))
    assert found.scales([ONE]) == (0.25,)
    assert (log.position, found.awaits_mean) == (0, False)


def test_the_mean_of_several_is_awaited_from_every_shard_once() -> None:
    found, log = norms(global_clip_norm=1.0)
    log.append(Reduce(()))
    assert found.scales([ONE, TWO]) is None
    assert [entry for _, entry in log.after(1)] == [Reduce(((ONE.id, 0.5), (TWO.id, 0.5)))]
    assert found.awaits_mean
    assert found.reduced(0, 1, ((0, 1e9),)) is None, "of another mean"
    assert found.reduced(0, 2, ((0, 9.0),)) is None
    assert found.reduced(0, 2, ((0, 9.0),)) is None, "the same shard again"
    assert found.reduced(1, 2, ((0, 7.0),)) == ([ONE, TWO], (0.25,))
    assert not found.awaits_mean
    assert found.reduced(1, 2, ((0, 7.0),)) is None


def test_who_takes_over_has_the_reports_and_the_mean_that_is_awaited() -> None:
    before, _ = norms(global_clip_norm=1.0)
    before.note(ONE.id, ((0, 16.0),))
    after, log = norms(global_clip_norm=1.0)
    assert list(after.take_over(before)) == []
    assert after.scales([ONE]) == (0.25,)
    assert after.scales([ONE, TWO]) is None
    last, _ = norms(global_clip_norm=1.0)
    assert list(last.take_over(after)) == [ONE, TWO]
    assert last.reduced(0, log.position, ((0, 9.0),)) is None
    assert last.reduced(1, log.position, ((0, 7.0),)) == ([ONE, TWO], (0.25,))
