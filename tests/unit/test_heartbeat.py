"""Heartbeats: what the lead says is passed on, and silence is borne for a time only."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from grpc_ps.client.heartbeat import Heartbeat
from grpc_ps.client.shared.errors import Fenced, PeerLost, PeerUnreachable, PsError
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire

IDENTITY = job_pb2.Identity(run=1, worker=2, incarnation=3)


class Lead:
    """Answers what a test says; `reply` gets the number of the call, from one."""

    address = "lead:1"

    def __init__(self, reply: Callable[[int], wire.HeartbeatResponse]) -> None:
        self.reply = reply
        self.requests: list[wire.HeartbeatRequest] = []

    def heartbeat(self, request: wire.HeartbeatRequest, timeout: float) -> wire.HeartbeatResponse:
        self.requests.append(request)
        return self.reply(len(self.requests))


class Listener:
    def __init__(self) -> None:
        self.beats: list[wire.HeartbeatResponse] = []
        self.error: Exception | None = None
        self.ended = threading.Event()

    def beat(self, response: wire.HeartbeatResponse) -> None:
        self.beats.append(response)
        if response.done:
            self.ended.set()

    def lost(self, error: Exception) -> None:
        self.error = error
        self.ended.set()


def run(lead: Lead, lost_timeout: float = 5.0) -> Listener:
    listener = Listener()
    heartbeat = Heartbeat(lead, IDENTITY, listener, lease=0.04, lost_timeout=lost_timeout)
    heartbeat.note(11, 0.5)
    heartbeat.start()
    assert listener.ended.wait(20)
    heartbeat.stop()
    return listener


def test_beats_until_the_job_is_done_and_reports() -> None:
    lead = Lead(lambda call: wire.HeartbeatResponse(global_step=call, done=call >= 3, exit_code=4))
    listener = run(lead)
    assert [beat.global_step for beat in listener.beats] == [1, 2, 3]
    assert lead.requests[:3] == [wire.HeartbeatRequest(id=IDENTITY, local_step=11, loss=0.5)] * 3


@pytest.mark.parametrize(
    ("lease", "places", "seconds"),
    [(0.4, 1, 0.1), (10.0, 3, 1.0), (10.0, 100, 2.0), (10.0, 1000, 2.5)],
)
def test_what_a_worker_tells_is_fresh_unless_there_are_many(lease: float, places: int, seconds: float) -> None:
    lead = Lead(lambda call: wire.HeartbeatResponse())
    heartbeat = Heartbeat(lead, IDENTITY, Listener(), lease=lease, lost_timeout=5.0, places=places)
    assert heartbeat._interval == pytest.approx(seconds)


def test_only_a_loss_that_is_told_becomes_a_number() -> None:
    class Loss:
        def __float__(self) -> float:
            asked.append(self)
            return 0.5

    asked: list[Loss] = []
    lead = Lead(lambda call: wire.HeartbeatResponse())
    heartbeat = Heartbeat(lead, IDENTITY, Listener(), lease=10.0, lost_timeout=5.0)
    for step in range(3):
        heartbeat.note(step, Loss())
    heartbeat.ask(1.0)
    assert (lead.requests, len(asked)) == ([wire.HeartbeatRequest(id=IDENTITY, local_step=2, loss=0.5)], 1)


def test_short_silence_is_borne() -> None:
    def reply(call: int) -> wire.HeartbeatResponse:
        if call < 4:
            raise PeerUnreachable("lead:1: refused")
        return wire.HeartbeatResponse(done=True)

    listener = run(Lead(reply))
    assert listener.error is None
    assert len(listener.beats) == 1


@pytest.mark.parametrize("error", [PeerUnreachable("refused"), PeerLost("no answer")])
def test_long_silence_is_the_end(error: PsError) -> None:
    def reply(call: int) -> wire.HeartbeatResponse:
        raise error

    listener = run(Lead(reply), lost_timeout=0.1)
    assert type(listener.error) is PeerLost
    assert str(listener.error).startswith("lead:1: shard 0 has not answered for 0.1 s")


def test_a_worker_that_stood_still_asks_again_before_it_gives_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Stopped for an hour within a heartbeat: that one has failed, and the next one says that the lease is over."""
    stopped = [0.0]
    clock = SimpleNamespace(monotonic=lambda: time.monotonic() + stopped[0])
    monkeypatch.setattr("grpc_ps.client.heartbeat.time", clock)

    def reply(call: int) -> wire.HeartbeatResponse:
        if call == 2:
            stopped[0] = 3600.0
            raise PeerLost("lead:1: deadline exceeded")
        if call == 3:
            raise Fenced("worker 2 is no member any more")
        return wire.HeartbeatResponse()

    lead = Lead(reply)
    listener = run(lead)
    assert isinstance(listener.error, Fenced)
    assert len(lead.requests) == 3


@pytest.mark.parametrize("error", [None, Fenced("worker 2 is no member any more")])
def test_a_stopped_heartbeat_tells_its_listener_nothing_more(error: PsError | None) -> None:
    """Not even what the lead answers to the call that was under way."""
    asked, answered = threading.Event(), threading.Event()

    def reply(call: int) -> wire.HeartbeatResponse:
        asked.set()
        assert answered.wait(20)
        if error is not None:
            raise error
        return wire.HeartbeatResponse(evaluator=True)

    listener = Listener()
    heartbeat = Heartbeat(Lead(reply), IDENTITY, listener, lease=0.04, lost_timeout=5.0)
    heartbeat.start()
    assert asked.wait(20)
    heartbeat.stop()
    answered.set()
    heartbeat._thread.join(20)
    assert not heartbeat._thread.is_alive()
    assert (listener.beats, listener.error) == ([], None)


def test_what_the_listener_is_being_told_ends_before_the_heartbeat_is_stopped() -> None:
    class Slow(Listener):
        told, go_on = threading.Event(), threading.Event()

        def beat(self, response: wire.HeartbeatResponse) -> None:
            self.told.set()
            assert self.go_on.wait(20)
            super().beat(response)

    listener, lead = Slow(), Lead(lambda call: wire.HeartbeatResponse())
    # The second beat would come in minutes.
    heartbeat = Heartbeat(lead, IDENTITY, listener, lease=600.0, lost_timeout=5.0, places=1_000_000)
    seen: list[int] = []
    stopping = threading.Thread(target=lambda: (heartbeat.stop(), seen.append(len(listener.beats))), daemon=True)
    heartbeat.start()
    assert listener.told.wait(20)
    stopping.start()
    stopping.join(0.1)
    listener.go_on.set()
    stopping.join(20)
    assert seen == [1]


def test_refusal_is_the_end_at_once() -> None:
    def reply(call: int) -> wire.HeartbeatResponse:
        raise Fenced("worker 2 is no member any more")

    lead = Lead(reply)
    listener = run(lead)
    assert type(listener.error) is Fenced
    assert len(lead.requests) == 1


def test_a_worker_that_still_reads_after_the_end_keeps_its_lease() -> None:
    beyond = threading.Event()

    def reply(call: int) -> wire.HeartbeatResponse:
        if call == 5:
            beyond.set()
        return wire.HeartbeatResponse(done=True)

    lead, listener = Lead(reply), Listener()
    heartbeat = Heartbeat(lead, IDENTITY, listener, lease=0.04, lost_timeout=5.0)
    heartbeat.start()
    assert beyond.wait(20)
    heartbeat.stop()
    heartbeat._thread.join(20)
    assert not heartbeat._thread.is_alive()
    assert len(listener.beats) == 1, "the end is told once"


def test_a_lead_that_has_left_after_the_end_is_no_loss() -> None:
    def reply(call: int) -> wire.HeartbeatResponse:
        if call > 1:
            raise PeerUnreachable("lead:1: nothing answers there")
        return wire.HeartbeatResponse(done=True)

    listener = Listener()
    heartbeat = Heartbeat(Lead(reply), IDENTITY, listener, lease=0.04, lost_timeout=0.0)
    heartbeat.start()
    heartbeat._thread.join(20)
    assert not heartbeat._thread.is_alive()
    assert listener.error is None


@pytest.mark.parametrize("where", ["lead", "listener"])
def test_an_error_that_is_not_foreseen_is_told_and_not_swallowed(
    where: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A worker whose heartbeats have ended in silence would compute for nothing, and never hear of the end."""
    boom = RuntimeError("boom")

    def fails(*arguments: object) -> wire.HeartbeatResponse:
        raise boom

    if where == "listener":
        monkeypatch.setattr(Listener, "beat", fails)
    listener = run(Lead(fails if where == "lead" else lambda call: wire.HeartbeatResponse()))
    assert listener.error is boom
    assert "heartbeat_failed" in caplog.text


def test_an_error_after_the_stop_is_nobodys_concern(caplog: pytest.LogCaptureFixture) -> None:
    """The channel is closed while a heartbeat is on its way."""
    on_its_way, closed = threading.Event(), threading.Event()

    def fails(call: int) -> wire.HeartbeatResponse:
        on_its_way.set()
        assert closed.wait(20)
        raise ValueError("Cannot invoke RPC on closed channel!")

    listener = Listener()
    heartbeat = Heartbeat(Lead(fails), IDENTITY, listener, lease=0.04, lost_timeout=5.0)
    heartbeat.start()
    assert on_its_way.wait(20)
    heartbeat.stop()
    closed.set()
    heartbeat._thread.join(20)
    assert listener.error is None
    assert [record for record in caplog.records if record.name == "grpc_ps.client.heartbeat"] == []
