"""The decisions of the lead, event by event, without network or clock."""

from __future__ import annotations

from typing import Any

import pytest

from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.joining import JoinReply, JoinRequest
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Answer, Apply, Dismiss, Entry, PushId, Stop
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.settings import Signature

W = {"w": Signature("w", (), "float32", True)}


class Driver:
    """A job with scripted workers: every worker joins, pushes and asks as told."""

    def __init__(self, *, shards: int = 1, limits: Limits | None = None, **presets: Any) -> None:
        self.job = Job(run=7, shard_count=shards, presets=presets, limits=limits or Limits())
        self.now = 0.0
        self.seen = 0
        for shard in range(1, shards):
            self.job.follow(shard, shards, 100 + shard, f"s{shard}", self.now)

    def request(self, nonce: int, index: int | None = None, **changes: Any) -> JoinRequest:
        values = {
            "nonce": nonce,
            "name": f"host:{nonce}",
            "index": index,
            "run": 0,
            "shard_count": self.job.shards.count,
            "model": "linear",
            "parameters": W,
            "stated": {},
            "defaults": {"steps": 1000},
        }
        return JoinRequest(**{**values, **changes})

    def try_join(self, nonce: int, index: int | None = None, **changes: Any) -> JoinReply:
        return self.job.join(self.request(nonce, index, **changes), self.now)

    def join(self, nonce: int, index: int | None = None, **changes: Any) -> Member:
        reply = self.try_join(nonce, index, **changes)
        assert reply.member is not None, reply
        return reply.member

    def open(self, workers: int = 1) -> list[Member]:
        members = [self.join(1)]
        self.push(members[0], values=True)
        members += [self.join(nonce) for nonce in range(2, workers + 1)]
        for member in members:
            self.job.ask(member.worker, member.incarnation, member.sequence, self.now)
        return members

    def push(self, member: Member, *, shards: range | None = None, non_finite: str = "", **changes: Any) -> Push:
        sequence = member.sequence + 1
        push = Push(
            id=PushId(member.worker, member.incarnation, sequence),
            base_step=changes.get("base_step", member.base_steps[-1] if member.base_steps else 0),
            batch=changes.get("batch", member.batch or 0),
            examples=changes.get("examples", 1),
            values=changes.get("values", False),
        )
        for shard in shards or range(self.job.shards.count):
            self.job.whole(shard, push, non_finite, self.now)
        return push

    def news(self) -> list[Entry]:
        """Entries since the last call."""
        entries = [entry for _, entry in self.job.log.after(self.seen)]
        self.seen = self.job.log.position
        return entries

    def applies(self) -> list[Apply]:
        return [entry for _, entry in self.job.log.after(0) if isinstance(entry, Apply)]

    def answers(self, entries: list[Entry]) -> list[Answer]:
        return [entry for entry in entries if isinstance(entry, Answer)]


def test_the_first_worker_opens_and_the_others_wait_for_it() -> None:
    driver = Driver()
    assert driver.try_join(1).state == "OPENER"
    waiting = driver.try_join(2)
    assert (waiting.state, waiting.waiting_for) == ("WAITING", "worker 0 (host:1) to send the initial values")
    member = driver.job.members.at(0)
    assert member is not None
    driver.push(member, values=True)
    assert driver.job.opened == 1
    assert driver.try_join(2).state == "MEMBER"


def test_when_the_opener_dies_the_next_one_opens() -> None:
    driver = Driver()
    driver.join(1)
    driver.now = 11
    driver.job.tick(driver.now)
    assert driver.try_join(2).state == "OPENER"


def test_a_join_waits_for_every_shard() -> None:
    job = Job(run=7, shard_count=3, presets={}, limits=Limits())
    job.follow(2, 3, 102, "s2", 0.0)
    driver = Driver(shards=3)
    driver.job = job
    reply = driver.try_join(1)
    assert (reply.state, reply.waiting_for) == ("WAITING", "shard 1 of 3 to connect to the lead")


def test_async_applies_every_push_once_and_answers_it_with_new_parameters() -> None:
    driver = Driver()
    one, two = driver.open(2)
    driver.news()
    push = driver.push(one)
    apply, answer = driver.news()
    assert apply == Apply(1, ((push.id, 1.0),), 0.01)
    assert isinstance(answer, Answer)
    assert answer.result is not None
    assert (answer.worker, answer.step, answer.result.outcome, answer.result.staleness) == (0, 1, "APPLIED", 0)
    assert answer.release is not None
    assert answer.release.batch == 2
    driver.push(two)
    assert driver.answers(driver.news())[0].result is not None
    assert two.staleness == 1


def test_a_push_counts_only_when_it_is_whole_on_every_shard() -> None:
    driver = Driver(shards=2)
    (member,) = driver.open()
    push = driver.push(member, shards=range(1))
    assert driver.applies() == []
    driver.job.whole(1, push, "", driver.now)
    assert [apply.step for apply in driver.applies()] == [1]


def test_a_repeated_push_is_not_applied_again_and_gets_its_own_outcome() -> None:
    driver = Driver()
    (member,) = driver.open()
    push = driver.push(member)
    driver.news()
    driver.job.whole(0, push, "", driver.now)
    assert driver.news() == []
    driver.job.ask(0, 1, push.id.sequence, driver.now)
    (answer,) = driver.answers(driver.news())
    assert answer.result is not None
    assert (answer.result.outcome, answer.result.repeated) == ("APPLIED", True)
    assert answer.release is not None
    assert answer.release.batch == 1, "the number that is leased already, not another one"
    assert driver.job.step == 1


def test_steps_is_a_hard_limit() -> None:
    driver = Driver(steps=3)
    one, two = driver.open(2)
    driver.push(one)
    driver.push(two)
    driver.push(one)
    assert driver.job.step == 3
    driver.news()
    driver.push(two)
    (answer,) = driver.answers(driver.news())
    assert answer.result is not None
    assert answer.result.outcome == "DONE"
    assert answer.done is not None
    assert (driver.job.step, len(driver.applies())) == (3, 3)


def test_sync_round_has_one_gradient_of_each_worker_in_order_of_batches() -> None:
    driver = Driver(mode="sync", workers=2)
    one, two = driver.open(2)
    driver.news()
    second = driver.push(two, examples=2)
    assert driver.applies() == []
    first = driver.push(one, examples=10)
    (apply,) = driver.applies()
    assert apply.pushes == ((first.id, pytest.approx(10 / 12, abs=1e-7)), (second.id, pytest.approx(2 / 12, abs=1e-7)))
    answers = driver.answers(driver.news())
    assert [(answer.worker, answer.step, answer.release is not None) for answer in answers] == [
        (0, 1, True),
        (1, 1, True),
    ]


def test_sync_waits_for_all_workers_before_it_starts() -> None:
    driver = Driver(mode="sync", workers=2)
    driver.open(1)
    assert all(answer.release is None for answer in driver.answers(driver.news()))
    assert driver.job.waiting_for() == "workers: 1 of 2 have joined"
    driver.now = 301
    for member in driver.job.members:
        member.last_beat = driver.now
    driver.job.tick(driver.now)
    assert driver.job.done is None, "the wait is counted from the first tick that sees it"
    driver.now = 602
    for member in driver.job.members:
        member.last_beat = driver.now
    driver.job.tick(driver.now)
    assert driver.job.done is not None
    assert driver.job.done.exit_code == 4
    assert "1 of 2 have joined" in driver.job.done.reason


def test_a_round_does_not_span_epochs() -> None:
    driver = Driver(mode="sync", workers=4, examples=101, batch_size=10, epochs=1)
    members = driver.open(4)
    while driver.job.done is None:
        for member in members:
            if member.batch is not None:
                driver.push(member)
    sizes = [len(apply.pushes) for apply in driver.applies()]
    assert sizes == [4, 4, 3]


def test_a_late_push_of_a_backup_worker_is_refused_and_its_number_handed_out_again() -> None:
    driver = Driver(mode="sync", workers=2, backup=1)
    one, two, three = driver.open(3)
    late_batch = three.batch
    driver.push(one)
    driver.push(two)
    driver.news()
    driver.push(three)
    (answer,) = driver.answers(driver.news())
    assert answer.result is not None
    assert (answer.result.outcome, answer.result.staleness) == ("LATE", 1)
    assert answer.release is not None
    assert answer.release.batch == late_batch
    assert len(driver.applies()) == 1


def test_a_lost_worker_gives_its_number_back() -> None:
    driver = Driver()
    _one, two = driver.open(2)
    driver.now = 5.0
    driver.job.beat(0, 1, driver.now)
    driver.now = 11.0
    driver.job.tick(driver.now)
    assert [member.worker for member in driver.job.members] == [0]
    assert Dismiss(1, 2, "FENCED", "worker 1 lost its lease: no heartbeat for 10 s", 0) in driver.news()
    newcomer = driver.join(9)
    driver.job.ask(newcomer.worker, newcomer.incarnation, 0, driver.now)
    assert (newcomer.batch, newcomer.incarnation) == (two.batch, 3)


def test_a_push_that_is_whole_counts_although_its_worker_is_lost() -> None:
    driver = Driver(mode="sync", workers=2)
    one, two = driver.open(2)
    push = driver.push(one)
    driver.job.leave(0, one.incarnation, driver.now)
    gone = [entry for entry in driver.news() if isinstance(entry, Dismiss)]
    assert [entry.keep for entry in gone] == [push.id.sequence]
    driver.push(two)
    assert [len(apply.pushes) for apply in driver.applies()] == [2]


def test_a_newcomer_whose_index_has_contributed_waits_for_the_next_round() -> None:
    driver = Driver(mode="sync", workers=2)
    one, two = driver.open(2)
    driver.push(one)
    driver.job.leave(0, one.incarnation, driver.now)
    newcomer = driver.join(9, index=0)
    driver.job.ask(0, newcomer.incarnation, 0, driver.now)
    assert newcomer.batch is None
    driver.push(two)
    assert newcomer.batch is not None
    assert newcomer.base_steps == [1]


def test_a_sync_job_ends_when_nobody_replaces_a_lost_worker() -> None:
    driver = Driver(mode="sync", workers=2, limits=Limits(rejoin=6))
    one, two = driver.open(2)
    driver.push(one)
    driver.job.leave(1, two.incarnation, driver.now)
    driver.now = 5.0
    driver.job.beat(0, one.incarnation, driver.now)
    driver.job.tick(driver.now)
    assert driver.job.done is None
    driver.now = 6.5
    driver.job.tick(driver.now)
    assert driver.job.done is not None
    assert driver.job.done.exit_code == 4
    assert "worker 1 (host:2)" in driver.job.done.reason


def test_min_workers_lets_the_round_close_without_the_lost_one() -> None:
    driver = Driver(mode="sync", workers=2, min_workers=1, limits=Limits(rejoin=6))
    one, two = driver.open(2)
    driver.push(one)
    driver.job.leave(1, two.incarnation, driver.now)
    driver.now = 6.5
    driver.job.beat(0, one.incarnation, driver.now)
    driver.job.tick(driver.now)
    driver.job.tick(driver.now)
    assert driver.job.done is None
    assert [len(apply.pushes) for apply in driver.applies()] == [1]


def test_non_finite_is_refused_whole_and_its_number_retired() -> None:
    driver = Driver()
    (member,) = driver.open()
    driver.news()
    driver.push(member, non_finite="w")
    (answer,) = driver.answers(driver.news())
    assert answer.result is not None
    assert (answer.result.outcome, answer.result.parameter) == ("NON_FINITE", "w")
    assert (member.batch, driver.job.step) == (1, 0)


def test_a_push_for_another_step_or_batch_ends_that_worker() -> None:
    driver = Driver()
    (member,) = driver.open()
    driver.news()
    driver.push(member, base_step=5)
    (gone,) = driver.news()
    assert isinstance(gone, Dismiss)
    assert gone.reason == "INVALID_PUSH"
    assert "at step 5; it holds batch 0 at step 0" in gone.detail
    assert driver.applies() == []


@pytest.mark.parametrize(
    ("change", "reason", "both"),
    [
        ({"stated": {"mode": "sync"}}, "MISMATCH", ("'async'", "'sync'")),
        ({"stated": {"steps": 80}}, "MISMATCH", ("1000", "80")),
        ({"parameters": {"w": Signature("w", (2,), "float32", True)}}, "MISMATCH", ("float32[]", "float32[2]")),
        ({"parameters": {}}, "MISMATCH", ("'w'", "none of that name")),
        ({"shard_count": 2}, "MISMATCH", ("2 shards", "has 1")),
        ({"run": 8}, "WRONG_RUN", ("gone",)),
    ],
)
def test_a_newcomer_with_something_else_is_refused_with_both_values(
    change: dict[str, Any], reason: str, both: tuple[str, ...]
) -> None:
    driver = Driver()
    driver.open()
    before = driver.job.log.position
    with pytest.raises(Refusal) as caught:
        driver.try_join(5, **change)
    assert caught.value.reason == reason
    assert all(text in caught.value.detail for text in both), caught.value.detail
    assert driver.job.log.position == before


def test_presets_of_the_lead_hold_before_anybody_has_opened() -> None:
    driver = Driver(mode="sync", workers=2)
    with pytest.raises(Refusal, match="mode: shard 0 has 'sync', this worker has 'async'"):
        driver.try_join(1, stated={"mode": "async"})


def test_a_second_holder_of_an_index_is_refused_once_the_first_one_beats() -> None:
    driver = Driver()
    (member,) = driver.open()
    driver.now = 1.0
    assert driver.try_join(5, index=0).state == "WAITING"
    driver.now = 2.0
    driver.job.beat(0, member.incarnation, driver.now)
    with pytest.raises(Refusal, match="FENCED: index 0 is held by host:1"):
        driver.try_join(5, index=0)


def test_a_silent_holder_is_replaced_after_its_lease() -> None:
    driver = Driver()
    driver.open()
    driver.now = 9.0
    assert driver.try_join(5, index=0).state == "WAITING"
    driver.now = 10.5
    driver.job.tick(driver.now)
    reply = driver.try_join(5, index=0)
    assert reply.member is not None
    assert (reply.member.worker, reply.member.incarnation) == (0, 2)


def test_a_repeated_join_is_the_same_life() -> None:
    driver = Driver()
    driver.open()
    assert driver.try_join(1).member is driver.try_join(1).member
    assert len(driver.job.members) == 1


def test_places_are_limited() -> None:
    driver = Driver(max_workers=2)
    driver.open(2)
    with pytest.raises(Refusal, match="FULL: all 2 places"):
        driver.try_join(5)


def test_a_shard_that_comes_back_empty_ends_the_job() -> None:
    driver = Driver(shards=2)
    driver.open()
    driver.job.shards.disconnect(1, 101, driver.now)
    with pytest.raises(Refusal, match="shard 1 lost its state and no checkpoint is configured"):
        driver.job.follow(1, 2, 999, "s1", driver.now)
    assert driver.job.done is not None
    assert driver.job.done.exit_code == 4


def test_a_shard_that_comes_back_as_it_was_goes_on() -> None:
    driver = Driver(shards=2)
    (member,) = driver.open()
    driver.job.shards.disconnect(1, 101, driver.now)
    driver.job.follow(1, 2, 101, "s1", driver.now)
    driver.push(member)
    assert driver.job.step == 1


def test_a_shard_that_stays_away_ends_the_job() -> None:
    driver = Driver(shards=2)
    (member,) = driver.open()
    driver.job.shards.disconnect(1, 101, 0.0)
    driver.now = 10.5
    driver.job.beat(0, member.incarnation, driver.now)
    driver.job.tick(driver.now)
    assert driver.job.done is not None
    assert "shard 1 (s1) has been gone for 10 s" in driver.job.done.reason


def test_an_overflowing_result_ends_the_job_with_the_parameter() -> None:
    driver = Driver()
    driver.open()
    driver.job.overflow("w", 4)
    assert driver.job.done is not None
    assert driver.job.done.exit_code == 5
    assert "parameter 'w'" in driver.job.done.reason


def test_the_end_is_told_to_everybody_before_the_log_stops() -> None:
    driver = Driver(steps=1)
    one, two = driver.open(2)
    driver.news()
    driver.push(one)
    entries = driver.news()
    assert isinstance(entries[-1], Stop)
    assert [answer.done is not None for answer in driver.answers(entries)] == [True, True]
    driver.job.leave(0, one.incarnation, driver.now)
    assert not driver.job.finished()
    driver.job.leave(1, two.incarnation, driver.now)
    assert driver.job.finished()


def test_readers_are_few_and_their_pins_end() -> None:
    driver = Driver()
    with pytest.raises(Refusal, match="NOT_OPEN"):
        driver.job.pin(1, driver.now)
    driver.open()
    for name in range(8):
        driver.job.pin(name, driver.now)
    with pytest.raises(Refusal, match="FULL"):
        driver.job.pin(8, driver.now)
    driver.job.unpin(3)
    driver.job.pin(8, driver.now)
    driver.now = 31.0
    driver.job.pin(9, driver.now)


def test_one_live_worker_holds_the_lease_to_evaluate() -> None:
    driver = Driver()
    one, two = driver.open(2)
    assert driver.job.evaluator == one.incarnation
    driver.job.leave(0, one.incarnation, driver.now)
    assert driver.job.evaluator == two.incarnation


def test_the_log_keeps_what_a_follower_has_not_acknowledged() -> None:
    driver = Driver(shards=2)
    (member,) = driver.open()
    driver.push(member)
    position = driver.job.log.position
    driver.job.log.trim(driver.job.shards.acknowledge(1, position - 1))
    assert [at for at, _ in driver.job.log.after(position - 1)] == [position]
    with pytest.raises(LookupError):
        list(driver.job.log.after(position - 2))


def test_a_push_computed_on_either_release_of_its_lease_is_taken() -> None:
    """A link that broke brings a second release of the same batch, perhaps of a later step; both are honest."""
    driver = Driver()
    one, two = driver.open(2)
    driver.push(two)
    driver.job.ask(0, one.incarnation, one.sequence, driver.now)
    assert set(one.base_steps) == {0, 1}
    driver.push(one, base_step=0)
    assert (driver.job.step, one.staleness) == (2, 1)
    assert one.base_steps == [2]


def test_epochs_that_one_layer_states_are_not_cut_short_by_anothers_steps() -> None:
    driver = Driver(epochs=2, examples=10, batch_size=5)
    driver.open()
    assert driver.job.definition is not None
    settings = driver.job.definition.settings
    assert (settings["epochs"], settings["steps"]) == (2, 0)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("mode", "foo"),
        ("optimizer", "foo"),
        ("workers", 0),
        ("batch_size", 0),
        ("learning_rate", float("nan")),
        ("learning_rate", -1.0),
        ("momentum", 1.0),
        ("initial_accumulator", -1.0),
    ],
)
def test_settings_that_cannot_be_are_refused_by_name(name: str, value: Any) -> None:
    driver = Driver()
    with pytest.raises(Refusal, match=f"MISMATCH: {name} "):
        driver.try_join(1, stated={name: value})
    assert driver.join(2).worker == 0, "the job is as if the other had not come"


def test_time_in_which_the_lead_stood_still_ends_no_lease() -> None:
    driver = Driver()
    driver.open()
    driver.now = 30.0
    driver.job.members.excuse(25.0)
    driver.job.tick(driver.now)
    assert len(driver.job.members) == 1
    driver.now = 36.0
    driver.job.tick(driver.now)
    assert len(driver.job.members) == 0


def test_an_opener_that_beats_but_sends_nothing_makes_room() -> None:
    driver = Driver(limits=Limits(start=60))
    opener = driver.join(1)
    for driver.now in (1.0, 30.0, 62.0):
        driver.job.beat(0, opener.incarnation, driver.now)
        driver.job.tick(driver.now)
    assert [entry.reason for entry in driver.news() if isinstance(entry, Dismiss)] == ["FENCED"]
    assert driver.try_join(2).state == "OPENER"
