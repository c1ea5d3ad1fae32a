"""A worker's session against shards that a test plays: steps, superseded answers, the end."""

from __future__ import annotations

import threading

import pytest
from fake_shards import GRADIENTS, IDENTITY, PLACE, SPECS, FakeLead, FakeShard, answer, done, session, values

from grpc_ps.client.membership import Membership
from grpc_ps.client.parameters import Parameters
from grpc_ps.client.session import Reply, TrainingSession
from grpc_ps.client.shared.errors import Ending, Fenced, InvalidPush
from grpc_ps.client.step_times import StepTimes
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire


def test_steps_of_two_shards() -> None:
    script = [answer(1, batch=0, fill=1), answer(2, 1, 1, fill=2), done(3, 2)]
    shards = [FakeShard("a:1", (7, 0, script)), FakeShard("b:1", (8, 0, script))]
    one = session(*shards)
    arrays = dict(one.parameters)
    assert one.begin() == Reply(global_step=1, batch=0)
    assert values(one) == {1.0}
    one.send(GRADIENTS, 5)
    assert one.wait() == Reply(outcome="APPLIED", global_step=2, batch=1)
    assert values(one) == {2.0}
    one.send(GRADIENTS, 5)
    assert one.wait() == Reply(outcome="APPLIED", global_step=3, done=True)
    assert all(one.parameters[name] is array for name, array in arrays.items())
    assert shards[0].sent() == ["attach", "ask 0", "push 1", "push 2"]
    assert shards[1].sent() == ["attach", "push 1", "push 2"]
    header = shards[1].streams[0].sent[2].header
    assert header == wire.PushHeader(id=IDENTITY, sequence=2, kind=1, base_step=2, batch=1, examples=5, total_bytes=64)


def test_opener_sends_values_and_waits_for_their_answer() -> None:
    shards = [FakeShard(name, (7, 0, [answer(3, 1, 0, fill=4)])) for name in ("a:1", "b:1")]
    one = session(*shards, opener=True)
    one.open(GRADIENTS)
    assert one.begin() == Reply(outcome="APPLIED", global_step=3, batch=0)
    assert [shard.sent() for shard in shards] == [["attach job", "values 1"]] * 2


class Ticks:
    """A clock that is a second later each time somebody looks."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        self.now += 1.0
        return self.now


def test_each_step_but_the_first_is_divided_into_phases_without_gaps() -> None:
    script = [answer(1, batch=0), answer(2, 1, 1), answer(3, 2, 2), answer(4, 3, 3), done(5, 4)]
    lead = FakeLead()
    one = session(FakeShard("a:1", (7, 0, script)), FakeShard("b:1", (8, 0, script)), lead=lead)
    one.times = StepTimes(Ticks())
    one.begin()
    told = []
    for _ in range(4):
        one.send(GRADIENTS, 5)
        one.wait()
        told.append(one._heartbeat.times)
    # One look a phase, and one more for the answer of the second shard; the last answer ends the job by itself.
    each = {"input": 1.0, "compute": 1.0, "encode": 1.0, "answer": 2.0, "receive": 2.0}
    assert told[:3] == [
        None,
        wire.WorkerTimes(steps=1, **each),
        wire.WorkerTimes(steps=2, **{name: 2 * seconds for name, seconds in each.items()}),
    ]
    assert (told[3].steps, told[3].compute, told[3].answer) == (3, 3.0, 5.0)
    one._lead_says_done()
    assert lead.requests[-1].times == told[3]


def test_the_opener_tells_no_step_for_its_values() -> None:
    one = session(FakeShard("a:1", (7, 0, [answer(3, 1, 0), answer(4, 2, 1)])), opener=True)
    one.open(GRADIENTS)
    one.begin()
    one.send(GRADIENTS, 5)
    one.wait()
    assert one._heartbeat.times is None


def test_answer_of_a_lower_position_is_never_mixed_with_a_higher_one() -> None:
    shards = [
        FakeShard("a:1", (7, 0, [answer(4, batch=2, fill=4), answer(6, batch=2, fill=6)])),
        FakeShard("b:1", (8, 0, [answer(6, batch=2, fill=6)])),
    ]
    one = session(*shards)
    assert one.begin() == Reply(global_step=6, batch=2)
    assert values(one) == {6.0}


def test_heartbeat_that_says_done_ends_a_wait() -> None:
    lead = FakeLead()
    shard = FakeShard("a:1", (7, 0, []))
    one = session(shard, lead=lead, lease=0.04)
    lead.response = wire.HeartbeatResponse(done=True, global_step=20, exit_code=4, reason="shard 1 is gone")
    assert one.begin() == Reply(done=True, global_step=20, exit_code=4, reason="shard 1 is gone")
    assert one.global_step == 20


def test_lost_lease_ends_a_wait() -> None:
    lead = FakeLead()
    one = session(FakeShard("a:1", (7, 0, [])), lead=lead, lease=0.04)
    lead.response = Fenced("worker 3 is no member any more")
    with pytest.raises(Fenced, match="worker 3 is no member"):
        one.begin()


def test_heartbeat_tells_of_evaluator_and_step() -> None:
    lead = FakeLead()
    lead.response = wire.HeartbeatResponse(global_step=9, evaluator=True)
    beaten = threading.Event()
    one = session(FakeShard("a:1", (7, 0, [])), lead=lead, lease=0.04)
    heard = one.beat
    one.beat = lambda response: (heard(response), beaten.set())  # type: ignore[method-assign, assignment, func-returns-value]
    assert beaten.wait(10)
    assert (one.global_step, one.evaluator) == (9, True)
    one.leave()


def test_job_that_has_ended_before_is_done_at_once() -> None:
    end = Reply(done=True, global_step=20)
    assert session(FakeShard("a:1"), ended=end).begin() == end


def test_gradients_that_do_not_fit_change_nothing() -> None:
    shard = FakeShard("a:1", (7, 0, [answer(1, batch=0), answer(2, 1, 1)]))
    one = session(shard)
    one.begin()
    with pytest.raises(InvalidPush, match="missing: b"):
        one.send({"a": GRADIENTS["a"]}, 1)
    one.send(GRADIENTS, 1)
    assert one.wait().batch == 1
    assert shard.sent() == ["attach", "ask 0", "push 1"]


def test_send_without_a_batch_is_an_error_of_the_caller() -> None:
    with pytest.raises(RuntimeError, match="call `begin`"):
        session(FakeShard("a:1")).send(GRADIENTS, 1)


def test_leave_gives_the_place_back_once() -> None:
    left: list[None] = []
    one = TrainingSession(
        membership=Membership(identity=IDENTITY, job=job_pb2.JobSpec(), opener=False, lease=60, chunk_bytes=64),
        parameters=Parameters(SPECS, PLACE),
        shards=[],
        lead=FakeLead(),
        on_leave=lambda: left.append(None),
    )
    one.leave()
    one.leave()
    assert left == [None]


def test_a_worker_can_leave_when_it_is_told_to_evaluate() -> None:
    lead, left = FakeLead(), threading.Event()
    one = session(FakeShard("a:1"), lead=lead, lease=0.04)
    one.on_evaluator = lambda step: (one.leave(), left.set())[1]
    lead.response = wire.HeartbeatResponse(global_step=9, evaluator=True)
    assert left.wait(10)


def test_settings_are_the_jobs_own_with_those_that_are_zero() -> None:
    settings = job_pb2.Settings(mode="sync", steps=0, learning_rate=0.5, nesterov=False)
    one = session(FakeShard("a:1"), job=job_pb2.JobSpec(settings=settings), ended=Reply(done=True))
    assert one.settings == {"mode": "sync", "steps": 0, "learning_rate": 0.5, "nesterov": False}
    assert session(FakeShard("a:1"), ended=Reply(done=True)).settings == {}
    assert (one.run, one.worker, one.incarnation) == (1, 3, 4)


def test_push_that_the_heartbeats_end_overtakes_is_done() -> None:
    lead = FakeLead()
    one = session(FakeShard("a:1", (7, 0, [answer(1, batch=0)])), lead=lead, lease=0.04)
    one.begin()
    one.send(GRADIENTS, 1)
    lead.response = wire.HeartbeatResponse(done=True, global_step=20)
    assert one.wait() == Reply(outcome="DONE", done=True, global_step=20)
    assert one.wait() == Reply(outcome="DONE", done=True, global_step=20)


def test_end_after_a_step_that_was_answered_says_nothing_of_it_again() -> None:
    lead = FakeLead()
    one = session(FakeShard("a:1", (7, 0, [answer(1, batch=0), answer(2, 1, 1)])), lead=lead, lease=0.04)
    one.begin()
    one.send(GRADIENTS, 1)
    assert one.wait().outcome == "APPLIED"
    lead.response = wire.HeartbeatResponse(done=True, global_step=20)
    assert one.wait() == Reply(done=True, global_step=20)


def test_interrupt_ends_a_wait() -> None:
    one = session(FakeShard("a:1", (7, 0, [])))
    threading.Timer(0.01, one.interrupt, ("ended by SIGTERM",)).start()
    with pytest.raises(Ending, match="ended by SIGTERM"):
        one.begin()


def test_report_names_its_worker_step_and_metrics() -> None:
    lead = FakeLead()
    session(FakeShard("a:1"), lead=lead).report(40, {"accuracy": 0.5})
    assert lead.reports == [wire.ReportRequest(id=IDENTITY, global_step=40, metrics={"accuracy": 0.5})]


def test_evaluator_is_told_at_each_heartbeat() -> None:
    lead = FakeLead()
    one = session(FakeShard("a:1", (7, 0, [])), lead=lead, lease=0.04)
    heard: list[int] = []
    two = threading.Event()
    one.on_evaluator = lambda step: (heard.append(step), two.set() if len(heard) > 1 else None)[0]
    lead.response = wire.HeartbeatResponse(global_step=9, evaluator=True)
    assert two.wait(10)
    lead.response = wire.HeartbeatResponse(global_step=10, evaluator=True, done=True)
    assert one.begin().done
    assert set(heard) == {9}
