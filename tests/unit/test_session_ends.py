"""A worker's session whose push is answered before it is sent, and one whose data is used up."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from fake_shards import GRADIENTS, FakeLead, FakeShard, Scripted, answer, done, session, values
from history import wait_for

from grpc_ps.client.session import Reply
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import PeerLost
from grpc_ps.protos import parameter_server_pb2 as wire

LATE = wire.OUTCOME_LATE
# On one shard the image of gradients has 128 bytes: two chunks of 64.
SMALL: dict[str, Any] = {"chunk_bytes": 64}


def test_push_that_is_answered_while_it_is_sent_is_not_sent_on() -> None:
    script = [answer(1, batch=0), answer(5, 1, 3, outcome=LATE, fill=5), answer(6, 2, 4)]
    shard = FakeShard("a:1", (7, 0, script))
    one = session(shard, **SMALL)
    one.begin()
    one.send(GRADIENTS, 1)
    assert shard.sent() == ["attach", "ask 0", "push 1"]
    assert one.wait() == Reply(outcome="LATE", global_step=5, batch=3)
    assert values(one) == {5.0}
    one.send(GRADIENTS, 1)
    assert one.wait() == Reply(outcome="APPLIED", global_step=6, batch=4)
    assert shard.sent()[3:] == ["push 2"]


def test_push_that_is_not_answered_yet_is_sent_whole() -> None:
    shard = FakeShard("a:1", (7, 0, [answer(1, batch=0)]))
    one = session(shard, **SMALL)
    one.begin()
    one.send(GRADIENTS, 1)
    assert shard.sent() == ["attach", "ask 0", "push 1", "end"]
    shard.streams[0].say(answer(2, 1, 1))
    assert one.wait() == Reply(outcome="APPLIED", global_step=2, batch=1)


def test_answer_to_another_push_does_not_stop_this_one() -> None:
    """As it comes after a link that broke: the outcome of before once more, or a release alone."""
    shard = FakeShard("a:1", (7, 0, [answer(1, batch=0), answer(2, 1, 1)]))
    one = session(shard, **SMALL)
    one.begin()
    one.send(GRADIENTS, 1)
    one.wait()
    for stray in (answer(3, 1, 1, repeated=True), answer(4, 0, 1)):
        shard.streams[0].say(stray)
    one.send(GRADIENTS, 1)
    shard.streams[0].say(answer(5, 2, 2))
    assert one.wait() == Reply(outcome="APPLIED", global_step=5, batch=2)
    assert shard.sent()[2:] == ["push 1", "push 2", "end"]


def test_lead_shard_stops_what_is_sent_to_all() -> None:
    late = [answer(1, batch=0), answer(5, 1, 3, outcome=LATE)]
    shards = [FakeShard(address, (7, 0, late)) for address in ("a:1", "b:1")]
    specs = [ParameterSpec(name=name, shape=(64,), dtype="float32") for name in "ab"]
    one = session(*shards, specs=specs, **SMALL)
    one.begin()
    one.send({name: np.ones(64, np.float32) for name in "ab"}, 1)
    assert one.wait() == Reply(outcome="LATE", global_step=5, batch=3)
    assert [shard.sent()[-1] for shard in shards] == ["push 1", "push 1"]


def test_end_of_the_job_stops_a_push() -> None:
    shard = FakeShard("a:1", (7, 0, [answer(1, batch=0), done(9, 0)]))
    one = session(shard, **SMALL)
    one.begin()
    one.send(GRADIENTS, 1)
    assert one.wait() == Reply(outcome="DONE", global_step=9, done=True)
    assert shard.sent() == ["attach", "ask 0", "push 1"]


def test_push_with_a_known_outcome_is_not_sent_again_when_its_link_breaks() -> None:
    """The first answer to come says LATE; its release, or another shard's answer, does not come any more."""
    first: list[Scripted] = [answer(1, batch=0), answer(5, 1, outcome=LATE), PeerLost("cut")]
    again = [answer(7, 1, 3, outcome=LATE, repeated=True, fill=7)]
    shard = FakeShard("a:1", (7, 0, first), (7, 0, again))
    one = session(shard, **SMALL)
    one.begin()
    one.send(GRADIENTS, 1)
    assert one.wait() == Reply(outcome="LATE", global_step=7, batch=3)
    assert shard.sent(0) == ["attach", "ask 0", "push 1"]
    assert shard.sent(1) == ["attach", "ask 1"]
    assert values(one) == {7.0}


def test_push_that_was_cut_short_is_sent_again_if_its_outcome_is_not_known() -> None:
    shard = FakeShard("a:1", (7, 0, [answer(1, batch=0), PeerLost("cut")]), (7, 0, []))
    one = session(shard, **SMALL)
    one.begin()
    one.send(GRADIENTS, 1)

    def answered() -> None:
        wait_for(lambda: len(shard.streams) > 1 and "end" in shard.sent(1), "the push, whole")
        shard.streams[1].say(answer(2, 1, 1))

    threading.Thread(target=answered, daemon=True).start()
    assert one.wait().outcome == "APPLIED"
    assert shard.sent(1) == ["attach", "ask 1", "push 1", "end"]


def test_worker_without_data_says_so_and_waits_for_the_end() -> None:
    """What is under way meanwhile, a release or an outcome once more, does not end its wait."""
    script = [answer(1, batch=0), answer(2, batch=7), answer(3, batch=8), done(9, 0)]
    shard = FakeShard("a:1", (7, 0, script))
    one = session(shard)
    one.begin()
    assert one.finish() == Reply(global_step=9, done=True)
    assert shard.sent() == ["attach", "ask 0", "ask 0 out of data"]


def test_worker_without_data_says_so_again_when_its_link_breaks() -> None:
    script: list[Scripted] = [answer(1, batch=0), answer(2, 1, 1), PeerLost("cut")]
    shard = FakeShard("a:1", (7, 0, script), (7, 1, [answer(3, 1, repeated=True), done(9, 1)]))
    one = session(shard)
    one.begin()
    one.send(GRADIENTS, 1)
    assert one.wait().outcome == "APPLIED"
    assert one.finish() == Reply(global_step=9, done=True)
    assert shard.sent(0)[-1] == "ask 1 out of data"
    assert shard.sent(1) == ["attach", "ask 1 out of data"]


def test_worker_without_data_hears_of_the_end_by_heartbeat() -> None:
    lead = FakeLead()
    one = session(FakeShard("a:1", (7, 0, [answer(1, batch=0)])), lead=lead, lease=0.04)
    one.begin()
    lead.response = wire.HeartbeatResponse(done=True, global_step=20, reason="accuracy 0.98 >= 0.97 at step 20")
    assert one.finish() == Reply(done=True, global_step=20, reason="accuracy 0.98 >= 0.97 at step 20")


def test_worker_of_a_job_that_has_ended_finishes_at_once() -> None:
    end = Reply(done=True, global_step=20)
    assert session(FakeShard("a:1"), ended=end).finish() == end
