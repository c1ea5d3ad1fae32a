"""A worker's links against shards that a test plays: breaks, repeats, refusals."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest
from fake_shards import GRADIENTS, FakeLead, FakeShard, answer, session, values

from grpc_ps.client.connection import Connection
from grpc_ps.client.session import Reply
from grpc_ps.client.shared.errors import Corrupt, Fenced, InvalidPush, LostState, PeerLost, PeerUnreachable, PsError
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.protos.job_pb2 import Identity


def test_broken_link_is_mended_and_only_what_is_missing_is_sent_again() -> None:
    first = answer(1, batch=0)
    again = answer(5, 1, 3, fill=5, repeated=True)
    shards = [
        FakeShard("a:1", (7, 0, [first, PeerLost("a:1: reset")]), (7, 1, [again])),
        FakeShard("b:1", (8, 0, [first]), (8, 0, [again])),
    ]
    one = session(*shards)
    one.begin()
    one.send(GRADIENTS, 1)
    assert one.wait() == Reply(outcome="APPLIED", repeated=True, global_step=5, batch=3)
    assert values(one) == {5.0}
    assert shards[0].sent() == ["attach", "ask 1"]
    assert shards[1].sent() == ["attach", "push 1"]
    assert shards[1].streams[1].sent[1].header == shards[1].streams[0].sent[1].header


def test_link_that_breaks_between_steps_is_mended_by_the_next_wait() -> None:
    shard = FakeShard("a:1", (7, 0, [answer(1, batch=0)]), (7, 0, [answer(2, 1, 1)]))
    one = session(shard)
    one.begin()
    shard.streams[0].close()
    one.send(GRADIENTS, 1)
    assert one.wait() == Reply(outcome="APPLIED", global_step=2, batch=1)
    assert shard.sent() == ["attach", "ask 1", "push 1"]


def test_opener_whose_link_breaks_attaches_with_the_job_again() -> None:
    shard = FakeShard("a:1", (7, 0, [Corrupt("a:1: damaged")]), (7, 0, [answer(1, 1, 0)]))
    one = session(shard, opener=True)
    one.open(GRADIENTS)
    assert one.begin().batch == 0
    assert shard.sent() == ["attach job", "ask 1", "values 1"]


def test_other_boot_means_that_the_state_is_gone() -> None:
    broken = [answer(1, batch=0), PeerLost("reset")]
    shard = FakeShard("a:1", (7, 0, broken), (9, 0, []))
    one = session(shard)
    one.begin()
    with pytest.raises(LostState, match=r"shard 0 \(a:1\) restarted"):
        one.wait()


@pytest.mark.parametrize("error", [Fenced("lease ended"), InvalidPush("wrong base step")])
def test_refusal_is_not_tried_again(error: PsError) -> None:
    shard = FakeShard("a:1", (7, 0, [error]))
    with pytest.raises(type(error), match=str(error)):
        session(shard).begin()


def test_link_that_keeps_breaking_is_given_up() -> None:
    broken = (7, 0, [PeerLost("a:1: reset")])
    shard = FakeShard("a:1", *[broken] * 20)
    with pytest.raises(PeerLost, match="a:1: reset"):
        session(shard).begin()
    assert len(shard.streams) == 11


def test_shard_that_is_gone_after_the_end_is_normal() -> None:
    lead = FakeLead()
    lead.response = wire.HeartbeatResponse(done=True, global_step=20)
    shard = FakeShard("a:1", (7, 0, [Fenced("ending")]))
    assert session(shard, lead=lead).begin() == Reply(done=True, global_step=20)


class _Refusing:
    """A shard that is not there yet the first time, and takes the time for it from a clock of its own."""

    address = "a:1"

    def __init__(self) -> None:
        self.timeouts: list[float] = []

    def open_stream(self, on_end: object) -> _Refusing:
        return self

    def attach(self, identity: object, job: object) -> None:
        """Takes it, and says nothing yet."""

    def attached(self, timeout: float) -> wire.Attached:
        self.timeouts.append(timeout)
        if len(self.timeouts) == 2:
            return wire.Attached(boot=7)
        raise PeerUnreachable("a:1: no answer")

    def failure(self) -> None:
        return None

    def close(self) -> None:
        return None


def test_the_first_time_is_waited_for_longer_than_later_ones() -> None:
    shard = _Refusing()
    connection = Connection([shard], Identity(), None, timeout=0.3, first_timeout=60.0)  # type: ignore[list-item]
    with pytest.raises(PeerUnreachable) as caught:
        connection.attached()
    connection.recover(caught.value, lambda links, held: None)
    with pytest.raises(PeerUnreachable):
        connection.recover(PeerLost("a:1: reset"), lambda links, held: None)
    first, again, *later = shard.timeouts
    assert min(first, again) > 50
    assert max(later) <= 0.3


class _Stopped(_Refusing):
    """Refuses until it was asked more than `refusals` times; this process stops for an hour wherever `stops` says."""

    def __init__(self, stops: tuple[str, ...], refusals: int, monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__()
        self._stops, self._refusals = stops, refusals
        self._hours = 0
        clock = SimpleNamespace(monotonic=self._now, sleep=lambda seconds: self._at("in a pause"))
        monkeypatch.setattr("grpc_ps.client.connection.time", clock)
        monkeypatch.setattr("grpc_ps.client.connection.event", lambda *what, **more: self._at("before an attempt"))

    def _now(self) -> float:
        return time.monotonic() + 3600 * self._hours

    def _at(self, place: str) -> None:
        self._hours += place in self._stops

    def attached(self, timeout: float) -> wire.Attached:
        self.timeouts.append(timeout)
        if len(self.timeouts) > self._refusals:
            return wire.Attached(boot=7)
        self._at("in an attempt")
        raise PeerUnreachable("a:1: no answer")

    def recover(self) -> None:
        connection = Connection([self], Identity(), None, timeout=60.0, first_timeout=60.0)  # type: ignore[list-item]
        connection.recover(PeerLost("a:1: reset"), lambda links, held: None)


@pytest.mark.parametrize(
    ("place", "refusals"), [("before an attempt", 0), ("in an attempt", 1), ("in a pause", 1), ("nowhere", 9)]
)
def test_links_are_tried_once_more_by_a_process_that_stood_still(
    place: str, refusals: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Stopped for an hour, wherever that is: the shard may have been there all the time."""
    shard = _Stopped((place,), refusals, monkeypatch)
    shard.recover()
    assert len(shard.timeouts) == refusals + 1


def test_a_process_that_stands_still_again_and_again_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    shard = _Stopped(("in an attempt", "in a pause"), 9, monkeypatch)
    with pytest.raises(PeerUnreachable):
        shard.recover()
    assert len(shard.timeouts) == 2
