"""Answers of several shards count only together and from one position."""

from __future__ import annotations

from grpc_ps.client.answers import Answers, Reply
from grpc_ps.protos import parameter_server_pb2 as wire

APPLIED, LATE = wire.OUTCOME_APPLIED, wire.OUTCOME_LATE


def answer(position: int, *, result: wire.PushResult | None = None, batch: int | None = None) -> wire.Answer:
    release = None if batch is None else wire.Release(batch=batch, hint=batch + 2)
    return wire.Answer(position=position, global_step=position * 10, result=result, release=release)


def result(sequence: int, outcome: wire.Outcome = APPLIED, **more: int) -> wire.PushResult:
    return wire.PushResult(sequence=sequence, outcome=outcome, **more)


def done(position: int, exit_code: int = 0, reason: str = "") -> wire.Answer:
    end = wire.Done(exit_code=exit_code, reason=reason)
    return wire.Answer(position=position, global_step=7, result=result(1, wire.OUTCOME_DONE), done=end)


def test_one_shard_with_outcome_and_release_is_complete() -> None:
    answers = Answers(1, awaited=3)
    assert answers.lagging() == 0
    reply = answers.add(0, answer(4, result=result(3, LATE, staleness=2), batch=9))
    assert reply == Reply(outcome="LATE", staleness=2, global_step=40, batch=9, hint=11)


def test_question_without_push_needs_a_release_only() -> None:
    answers = Answers(1, awaited=0)
    assert answers.add(0, answer(1)) is None
    assert answers.add(0, answer(2, batch=0)) == Reply(global_step=20, batch=0, hint=2)


def test_all_shards_must_answer() -> None:
    answers = Answers(3, awaited=1)
    given = answer(4, result=result(1), batch=5)
    read = []
    for _ in range(2):
        read.append(answers.lagging())
        assert answers.add(read[-1], given) is None
    read.append(answers.lagging())
    reply = answers.add(read[-1], given)
    assert sorted(read) == [0, 1, 2]
    assert reply is not None
    assert (reply.outcome, reply.batch) == ("APPLIED", 5)


def test_answer_of_a_lower_position_is_superseded() -> None:
    answers = Answers(2, awaited=1)
    assert answers.add(0, answer(4, result=result(1), batch=5)) is None
    assert answers.lagging() == 1
    assert answers.add(1, answer(6, result=result(1, repeated=True), batch=5)) is None
    assert answers.lagging() == 0
    reply = answers.add(0, answer(6, result=result(1, repeated=True), batch=5))
    assert reply == Reply(outcome="APPLIED", global_step=60, batch=5, hint=7)


def test_release_can_come_after_the_outcome() -> None:
    answers = Answers(2, awaited=1)
    for position in (4, 8):
        first = answer(position, result=result(1, LATE)) if position == 4 else answer(position, batch=6)
        assert answers.add(0, first) is None
        assert answers.lagging() == 1
        reply = answers.add(1, first)
    assert reply == Reply(outcome="LATE", global_step=80, batch=6, hint=8)


def test_repeated_answer_to_an_earlier_push_is_passed_over() -> None:
    answers = Answers(1, awaited=2)
    assert answers.add(0, answer(4, result=result(1, repeated=True), batch=5)) is None
    reply = answers.add(0, answer(5, result=result(2), batch=6))
    assert reply is not None
    assert (reply.outcome, reply.batch, reply.repeated) == ("APPLIED", 6, False)


def test_known_outcome_survives_a_broken_link() -> None:
    answers = Answers(1, awaited=2)
    assert answers.add(0, answer(4, result=result(2, staleness=3))) is None
    answers.restart()
    reply = answers.add(0, answer(9, result=result(2, staleness=3, repeated=True), batch=1))
    assert reply == Reply(outcome="APPLIED", staleness=3, global_step=90, batch=1, hint=3)


def test_non_finite_names_the_parameter() -> None:
    refused = wire.PushResult(sequence=1, outcome=wire.OUTCOME_NON_FINITE, parameter="w")
    reply = Answers(1, awaited=1).add(0, answer(1, result=refused, batch=2))
    assert reply is not None
    assert (reply.outcome, reply.parameter) == ("NON_FINITE", "w")


def test_done_of_one_shard_is_enough() -> None:
    reply = Answers(2, awaited=1).add(1, done(9, 5, "w is not finite"))
    assert reply == Reply(outcome="DONE", global_step=7, done=True, exit_code=5, reason="w is not finite")


def test_push_that_the_end_overtakes_is_done_unless_its_outcome_is_known() -> None:
    end = Reply(done=True, global_step=20)
    answers = Answers(2, awaited=1)
    assert answers.overtaken(end) == Reply(outcome="DONE", done=True, global_step=20)
    answers.add(0, answer(4, result=result(1, LATE), batch=5))
    assert answers.overtaken(end) == Reply(outcome="LATE", done=True, global_step=20)
    assert Answers(2, awaited=0).overtaken(end) == end
