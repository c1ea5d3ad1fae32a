"""Checkpoints as the lead decides them: what waits for them, and what a job goes on with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from job_driver import Driver, W

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Answer, Apply, Done, Open, Save, Stop
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.resuming import Restored, gone_back_to
from grpc_ps.psserver.lead.saving import SavedPart, SavePlan, TrainingState
from grpc_ps.psserver.lead.settings import Signature, complete

EVERY_TWO = SavePlan(steps=2)


def restored(
    cold: bool = True, opened: dict[str, Any] | None = None, parameters: Mapping[str, Signature] = W, **settings: Any
) -> Restored:
    whole = complete({"steps": 10, **settings})
    return Restored(
        name="step-00000004",
        run=7,
        model="linear",
        parameters=parameters,
        settings=whole,
        opened={**whole, **(opened or {})},
        opened_count=1,
        state=TrainingState(step=4, cursor=6, returned=(3, 5), factor=0.5, started=True),
        cold=cold,
    )


def test_nothing_is_handed_out_before_step_0_is_safe() -> None:
    driver = Driver(plan=EVERY_TWO)
    (member,) = driver.open()
    kinds = [type(entry) for entry in driver.news()]
    assert kinds.index(Save) == kinds.index(Open) + 1
    assert member.batch is None
    assert driver.job.waiting_for() == "a checkpoint to be written"
    assert driver.commit() == 0
    assert member.batch == 0


def test_another_model_than_the_checkpoints_is_told_the_folder() -> None:
    driver = Driver(plan=EVERY_TWO, restored=replace(restored(), folder="ck"))
    other = {"model": "mnist", "parameters": {}}
    with pytest.raises(Refusal) as caught:
        driver.try_join(1, **other)
    assert caught.value.detail == (
        "model: the job trains 'linear', this worker 'mnist'; "
        "parameter 'w': the job has float32[], this worker's model has none of that name; "
        "the job goes on from ck: another model needs another --checkpoint-dir"
    )
    opened = Driver(plan=EVERY_TWO)
    opened.open()
    with pytest.raises(Refusal, match=r"none of that name$"):
        opened.try_join(2, **other)


def test_a_first_checkpoint_that_fails_ends_the_job() -> None:
    driver = Driver(plan=EVERY_TWO)
    driver.open()
    driver.commit(error="no space")
    assert driver.job.done == Done(6, "the first checkpoint could not be written: no space")


def test_the_end_is_told_when_the_last_step_is_safe() -> None:
    driver = Driver(plan=EVERY_TWO, steps=3)
    (member,) = driver.open()
    driver.commit()
    for step in (1, 2, 3):
        driver.push(member)
        if step == 2:
            assert driver.commit() == 2
    driver.news()
    assert driver.job.done is None
    assert member.batch is None
    assert driver.commit() == 3
    assert driver.job.done == Done()
    assert [type(entry) for entry in driver.news()] == [Answer, Stop]


def test_a_last_checkpoint_is_tried_again_and_then_given_up() -> None:
    driver = Driver(plan=EVERY_TWO, steps=1, limits=Limits(retry=3))
    (member,) = driver.open()
    driver.commit()
    driver.push(member)
    for _ in range(3):
        assert driver.job.done is None
        driver.commit(error="no space")
        driver.now += 1.0
        driver.job.beat(member.worker, member.incarnation, driver.now)
        driver.job.tick(driver.now)
    assert driver.job.done == Done(6, "the last checkpoint, of step 1, could not be written: no space")


def test_an_attempt_that_takes_too_long_is_given_up_also_while_it_is_committed() -> None:
    driver = Driver(plan=EVERY_TWO, limits=Limits(save=5, lease=100))
    (member,) = driver.open()
    driver.commit()
    driver.push(member)
    driver.push(member)
    saving = driver.job.saving
    assert saving is not None
    assert saving.current is not None
    driver.job.durability.saved(0, SavedPart(folder=saving.current.folder), driver.now)
    attempt = saving.to_commit()
    assert attempt is not None
    driver.now = 5.1
    driver.job.tick(driver.now)
    assert (saving.current, saving.error) == (None, "step 2 was not written within 5 s")
    assert saving.to_discard() == [attempt.folder]
    driver.job.committed(attempt.folder, "", driver.now)
    assert saving.committed == 0


def test_what_a_checkpoint_has_is_gone_on_with() -> None:
    driver = Driver(plan=EVERY_TWO, restored=restored())
    assert driver.news() == [Open(None, "step-00000004", 4)]
    assert (driver.job.step, driver.job.opened, driver.job.awaits_first) == (4, 1, True)
    member = driver.join(1, defaults={})
    driver.job.ask(member.worker, member.incarnation, 0, driver.now)
    assert (member.batch, member.base_steps) == (3, [4])
    driver.push(member)
    assert member.batch == 5
    driver.push(member)
    assert member.batch == 6
    (first, second) = [entry for entry in driver.applies() if isinstance(entry, Apply)]
    assert (first.step, second.step, first.learning_rate) == (5, 6, 0.005)


def test_who_goes_on_may_state_another_end_and_no_other_optimizer() -> None:
    driver = Driver(plan=EVERY_TWO, restored=restored())
    with pytest.raises(Refusal, match="optimizer: this worker has 'adam', the checkpoint 'sgd'") as caught:
        driver.join(1, stated={"optimizer": "adam"}, defaults={})
    assert caught.value.reason == "CHECKPOINT"
    driver.join(2, stated={"steps": 20, "learning_rate": 0.5}, defaults={})
    definition, training = driver.job.definition, driver.job.training
    assert definition is not None
    assert training is not None
    assert (definition.settings["steps"], training.learning_rate) == (20, 0.25)
    with pytest.raises(Refusal, match="steps: the job has 20, this worker has 30"):
        driver.join(3, stated={"steps": 30}, defaults={})


def table(capacity: int, **rules: Any) -> dict[str, Signature]:
    spec = {"spread": 0.05, "lazy": True, "push_rows": 9, "capacity": capacity, **rules}
    return {"t": Signature("t", (1000, 4), "float32", True, spec)}


def test_who_goes_on_may_give_a_table_another_capacity() -> None:
    """It is said before the shards take their rows; another worker is to have the same."""
    driver = Driver(plan=EVERY_TWO, shards=2, restored=restored(parameters=table(5)))
    assert driver.news() == []
    assert driver.job.waiting_for() == "a worker, which may give its tables another capacity"
    driver.now = 10_000.0
    driver.job.tick(driver.now)
    assert driver.job.done is None, "it is waited for as the first worker of any job that goes on"
    with pytest.raises(Refusal, match=r"MISMATCH: parameter 't': the job has .*push_rows=9.*push_rows=8"):
        driver.join(1, parameters=table(50, push_rows=8), defaults={})
    assert driver.job.definition is not None
    assert driver.job.definition.parameters == table(5), "who is refused changes nothing"
    driver.join(2, parameters=table(7), defaults={})
    assert driver.news()[0] == Open(None, "step-00000004", 4)
    assert driver.job.definition.parameters == table(7)
    with pytest.raises(Refusal, match=r"MISMATCH: parameter 't'.*capacity=7.*capacity=5"):
        driver.join(3, parameters=table(5), defaults={})


def test_a_shard_that_goes_while_a_worker_is_awaited_has_all_the_time_to_come_back() -> None:
    """It came a moment after the lead, and its link breaks when nobody has come for long: that is another wait."""
    driver = Driver(plan=EVERY_TWO, shards=2, limits=Limits(recovery=10), restored=restored(parameters=table(5)))
    for begins, comes in ((0.0, 1.0), (1000.0, 1009.0)):
        driver.job.shards.disconnect(1, 101, begins)
        driver.job.tick(begins + 0.1)
        driver.job.attendance.follow(1, 2, 101, "s1", comes)
        driver.job.tick(comes + 0.1)
    assert driver.job.done is None
    driver.job.shards.disconnect(1, 101, 2000.0)
    driver.job.tick(2000.1)
    assert driver.job.done is None
    driver.job.tick(2011.0)
    assert driver.job.done is not None
    assert driver.job.done.exit_code == 4


@pytest.mark.parametrize("parameters", [W, table(0)])
def test_a_job_without_capacities_is_restored_before_anybody_comes(parameters: Mapping[str, Signature]) -> None:
    driver = Driver(plan=EVERY_TWO, restored=restored(parameters=parameters))
    assert driver.news() == [Open(None, "step-00000004", 4)]


def test_what_was_stated_anew_holds_behind_a_rollback_to_the_same_checkpoint() -> None:
    """The job goes on from step 4 with other settings, and a shard dies before the next checkpoint."""
    driver = Driver(plan=EVERY_TWO, restored=restored(parameters=table(5)))
    driver.join(1, parameters=table(7), stated={"steps": 20}, defaults={})
    back = gone_back_to(restored(cold=False, parameters=table(5)), driver.job.restored)
    again = Driver(plan=EVERY_TWO, restored=back)
    assert again.news() == [Open(None, "step-00000004", 4)], "nobody may state anything any more"
    again.join(1, parameters=table(7), stated={"steps": 20}, defaults={})
    assert again.job.definition is not None
    assert again.job.definition.settings["steps"] == 20
    later = replace(restored(cold=False), state=TrainingState(step=6))
    assert gone_back_to(later, driver.job.restored) is later, "a later checkpoint has it"


def test_what_was_at_first_can_be_stated_again_after_another_resume() -> None:
    """Opened with 0.1, resumed with 0.01, and then with 0.1 again: that is no old command line any more."""
    driver = Driver(plan=EVERY_TWO, restored=restored(learning_rate=0.1))
    driver.join(1, stated={"learning_rate": 0.01}, defaults={})
    definition = driver.job.definition
    assert definition is not None
    again = Driver(
        plan=EVERY_TWO,
        restored=restored(learning_rate=0.01, opened={"learning_rate": definition.opened["learning_rate"]}),
    )
    again.join(1, stated={"learning_rate": 0.1}, defaults={})
    assert again.job.definition is not None
    assert again.job.definition.settings["learning_rate"] == 0.1


@pytest.mark.parametrize("leaves", [True, False])
def test_a_job_is_gone_on_with_while_an_old_member_holds_a_number(leaves: bool) -> None:
    driver = Driver(keep_alive=True)
    fast = driver.join(1, defaults={"steps": 2})
    driver.push(fast, values=True)
    slow = driver.join(2, defaults={})
    for member in (fast, slow):
        driver.job.ask(member.worker, member.incarnation, member.sequence, driver.now)
    driver.push(fast)
    driver.push(fast)
    assert driver.job.done == Done()
    assert slow.batch == 1
    driver.job.leave(fast.worker, fast.incarnation, driver.now)
    newcomer = driver.join(3, stated={"steps": 5}, defaults={})
    driver.job.ask(newcomer.worker, newcomer.incarnation, 0, driver.now)
    if leaves:
        driver.job.leave(slow.worker, slow.incarnation, driver.now)
    else:
        driver.push(slow, base_step=0, batch=1)
    while driver.job.done is None:
        driver.push(newcomer)
    assert driver.job.step == 5
    numbers = [push.worker for entry in driver.applies() for push, _ in entry.pushes]
    assert len(numbers) == 5


def test_a_shard_that_restarts_makes_the_job_fall_and_nothing_is_decided_any_more() -> None:
    driver = Driver(shards=2, plan=EVERY_TWO)
    (member,) = driver.open()
    driver.commit()
    driver.job.shards.disconnect(1, 101, driver.now)
    with pytest.raises(Refusal, match="has restarted") as caught:
        driver.job.attendance.follow(1, 2, 202, "s1", driver.now)
    assert caught.value.reason == "ROLLED_BACK"
    assert driver.job.phase == "RESTORING"
    before = driver.job.log.position
    driver.push(member)
    driver.job.tick(driver.now + 100)
    assert driver.job.step == 0
    reply = driver.try_join(5)
    assert (reply.state, reply.member) == ("WAITING", None)
    assert "to return to a checkpoint" in reply.waiting_for
    assert driver.job.log.position == before


def test_a_generation_that_is_over_ends_nothing() -> None:
    """The last step is committed while the job goes back, and somebody stops it: both are for the next generation."""
    driver = Driver(shards=2, plan=EVERY_TWO, steps=1)
    (member,) = driver.open()
    driver.commit()
    driver.push(member)
    driver.job.shards.disconnect(1, 101, driver.now)
    with pytest.raises(Refusal, match="has restarted"):
        driver.job.attendance.follow(1, 2, 202, "s1", driver.now)
    assert driver.commit() == 1
    driver.job.stop(Done(0, "stopped on request"), driver.now)
    assert driver.job.done is None
    assert driver.job.saving is not None
    assert driver.job.saving.committed == 1
