"""When hooks act, what they state, and where a program may say its cluster is."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.worker.cluster import parse_cluster
from grpc_ps.worker.hooks import (
    CheckpointSaverHook,
    EvaluationHook,
    Every,
    LoggingHook,
    StepResult,
    StopAtStepHook,
)


def result(step: int, **others: Any) -> StepResult:
    return StepResult(**{"global_step": step, "local_step": step, "loss": 0.5, "outcome": "APPLIED", **others})


def test_steps_are_counted_by_their_multiples_whoever_made_them() -> None:
    every = Every(10, None)
    every.begin(7)
    assert [step for step in (8, 9, 10, 11, 25, 29, 30) if every.due(step)] == [10, 25, 30]


def test_seconds_are_counted_from_the_last_time() -> None:
    now = [0.0]
    every = Every(None, 5.0, clock=lambda: now[0])
    every.begin(0)
    due = []
    for second in range(1, 14):
        now[0] = second
        due.append(every.due(second))
    assert [second for second, is_due in enumerate(due, 1) if is_due] == [5, 10]


@pytest.mark.parametrize(("steps", "secs"), [(None, None), (1, 1.0), (0, None), (None, -1.0)])
def test_one_of_steps_and_seconds_has_to_be_given(steps: int | None, secs: float | None) -> None:
    with pytest.raises(UsageError, match="give one of them, above 0"):
        Every(steps, secs)


def test_hooks_state_what_the_job_has_to_know() -> None:
    assert StopAtStepHook(70).settings() == {"steps": 70}
    assert EvaluationHook(10).settings() == {"eval_every": 10}
    assert LoggingHook(every_steps=1).settings() == {}
    for wrong in (lambda: StopAtStepHook(0), lambda: EvaluationHook(0)):
        with pytest.raises(UsageError, match="must be at least 1"):
            wrong()


def test_a_checkpoint_is_asked_for_when_it_is_due_and_not_of_a_job_that_is_over() -> None:
    asked: list[int] = []
    session: Any = SimpleNamespace(
        global_step=0, client=SimpleNamespace(checkpoint=lambda: asked.append(session.global_step))
    )
    hook = CheckpointSaverHook(every_steps=2)
    hook.begin(session)
    for step in (1, 2, 3, 4):
        session.global_step = step
        hook.after_step(session, result(step, done=step == 4))
    assert asked == [2]


def test_a_step_is_told_with_its_loss_and_shown_values(capsys: pytest.CaptureFixture[str]) -> None:
    session: Any = SimpleNamespace(global_step=0)
    told: list[StepResult] = []
    hooks = LoggingHook(every_steps=2), LoggingHook(every_steps=2, say=told.append)
    for step in (1, 2, 3):
        for hook in hooks:
            if step == 1:
                hook.begin(session)
            hook.after_step(session, result(step, values={"w": 0.1}))
    assert capsys.readouterr().out == "global_step 2: loss 0.5, w 0.1\n"
    assert [each.global_step for each in told] == [2]


ADDRESSES = ("a:1", "b:2")


@pytest.mark.parametrize(
    ("cluster", "index"),
    [
        ("a:1,b:2", None),
        (["a:1", "b:2"], None),
        ({"ps": ["a:1", "b:2"], "worker": ["c:3"]}, None),
        ({"cluster": {"ps": ["a:1", "b:2"], "worker": ["c:3", "d:4"]}, "task": {"type": "worker", "index": 1}}, 1),
        ('{"cluster": {"ps": ["a:1", "b:2"], "chief": ["c:3"], "worker": ["d:4"]}, "task": {"type": "worker"}}', 1),
        ({"cluster": {"ps": ["a:1", "b:2"], "chief": ["c:3"]}, "task": {"type": "chief", "index": 0}}, 0),
    ],
)
def test_every_way_to_say_where_the_cluster_is(cluster: Any, index: int | None) -> None:
    assert parse_cluster(cluster) == (ADDRESSES, index)


@pytest.mark.parametrize(
    ("cluster", "says"),
    [
        ("a", "cluster"),
        ("{", "TF_CONFIG: is no JSON"),
        ({"worker": ["c:3"]}, r"cluster\.ps: must be there"),
        ({"cluster": {"ps": ["a:1"]}, "task": {"type": "ps", "index": 0}}, "a session is a worker or the chief"),
    ],
)
def test_what_is_no_cluster_is_refused(cluster: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        parse_cluster(cluster)
