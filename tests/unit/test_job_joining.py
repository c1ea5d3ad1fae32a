"""How workers come into a job, event by event, without network or clock."""

from __future__ import annotations

from typing import Any

import pytest
from job_driver import Driver

from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.settings import Signature


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
    job.attendance.follow(2, 3, 102, "s2", 0.0)
    driver = Driver(shards=3)
    driver.job = job
    reply = driver.try_join(1)
    assert (reply.state, reply.waiting_for) == ("WAITING", "shard 1 of 3 to connect to the lead")


@pytest.mark.parametrize(
    ("change", "reason", "both"),
    [
        ({"stated": {"mode": "sync"}}, "MISMATCH", ("'async'", "'sync'")),
        ({"stated": {"steps": 80}}, "MISMATCH", ("1000", "80")),
        ({"parameters": {"w": Signature("w", (2,), "float32", True)}}, "MISMATCH", ("float32[]", "float32[2]")),
        ({"parameters": {}}, "MISMATCH", ("'w'", "none of that name")),
        ({"model": "mnist", "parameters": {}, "stated": {"steps": 1}}, "MISMATCH", ("'linear'", "'mnist'", "'w'")),
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


def test_epochs_can_be_preset_before_anybody_says_what_the_data_is() -> None:
    driver = Driver(epochs=2)
    with pytest.raises(Refusal, match="epochs 2: the data 'drawn' has no epochs"):
        driver.try_join(1, stated={"data": "drawn", "examples": 0})
    assert driver.join(2, stated={"data": "files", "examples": 10}).worker == 0
