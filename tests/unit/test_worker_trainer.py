"""The loop against a session that is played."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from grpc_ps.client.shared.errors import JobFailed, NonFinite
from grpc_ps.client.step_times import StepTimes
from grpc_ps.models.datasets.line import Line
from grpc_ps.models.linear import Linear
from grpc_ps.worker.data import NumberedFeed, source
from grpc_ps.worker.progress import Progress
from grpc_ps.worker.slots import Fed
from grpc_ps.worker.step import Step
from grpc_ps.worker.tensors import aligned_array
from grpc_ps.worker.trainer import NON_FINITE_LIMIT, Trainer


def reply(step: int, outcome: str | None = None, **others: Any) -> SimpleNamespace:
    fields = {"batch": step, "hint": step + 1, "done": False, "exit_code": 0, "reason": "", "parameter": ""}
    return SimpleNamespace(global_step=step, outcome=outcome, staleness=0, **{**fields, **others})


class FakeSession:
    """A shard that applies plain gradient descent at once, and answers `outcomes` while there are any."""

    worker = 3
    evaluator = False
    settings: Mapping[str, Any] = MappingProxyType({"mode": "async"})

    def __init__(self, steps: int, outcomes: tuple[str, ...] = (), last: Mapping[str, Any] | None = None) -> None:
        self.times = StepTimes()
        self.parameters = {name: aligned_array((1,), np.dtype(np.float32)) for name in ("w", "b")}
        self.sent: list[tuple[dict[str, float], int]] = []
        self.notes: list[tuple[int, Any]] = []
        self.told: tuple[int, Any] | None = None
        self.base_steps: list[int] = []
        self._steps = steps
        self._outcomes = list(outcomes)
        self._last = dict(last or {})
        self._step = 0
        self._waiting: dict[str, float] = {}

    def begin(self) -> SimpleNamespace:
        return reply(self._step)

    def send(self, gradients: Mapping[str, np.ndarray], examples: int, *, base_step: int) -> None:
        self.base_steps.append(base_step)
        self._waiting = {name: float(gradient[0]) for name, gradient in gradients.items()}
        self.sent.append((self._waiting, examples))

    def wait(self) -> SimpleNamespace:
        outcome = self._outcomes.pop(0) if self._outcomes else "APPLIED"
        if outcome == "APPLIED":
            self._step += 1
            for name, gradient in self._waiting.items():
                self.parameters[name] -= np.float32(0.1 * gradient)
        if self._step >= self._steps:
            return reply(self._step, outcome, batch=None, hint=None, done=True, **self._last)
        return reply(self._step, outcome, parameter="w")

    def note(self, local_step: int, loss: float | None) -> None:
        self.notes.append((local_step, loss))

    def tell(self) -> None:
        self.told = self.notes[-1]


def trainer(lines: list[str] | None = None, **others: Any) -> tuple[Trainer, Progress]:
    progress = Progress((lines if lines is not None else []).append)
    model = Linear()
    return Trainer(model, Step(model), progress, **others), progress


def feed() -> NumberedFeed:
    return NumberedFeed(source(Line(), batch_size=100, seed=0))


def train(loop: Trainer, session: Any, feed: Any, *, target: int) -> None:
    """Trains to the end."""
    for _ in loop.steps(session, feed, target=target):
        pass


def test_the_loop_trains_until_the_job_is_done() -> None:
    lines: list[str] = []
    loop, progress = trainer(lines)
    session = FakeSession(1000)
    train(loop, session, feed(), target=1000)
    assert session.parameters["w"][0] == pytest.approx(0.1, abs=0.0005)
    assert session.parameters["b"][0] == pytest.approx(0.3, abs=0.0005)
    assert (progress.global_step, progress.local_steps, progress.examples) == (1000, 1000, 100_000)
    assert progress.outcomes == {"APPLIED": 1000}
    assert progress.loss == pytest.approx(0, abs=1e-6)
    assert {examples for _, examples in session.sent} == {100}
    assert session.told == (1000, progress.loss)
    assert float(session.notes[-2][1]) == progress.loss, "of the last step, not of the last line"
    assert lines[0].startswith(lines[0][:19] + ": worker 3: global_step 1, local_step 1, loss = ")
    assert ", w = " in lines[0]


def test_the_gradient_is_that_of_the_released_parameters_and_the_batch() -> None:
    session = FakeSession(2)
    session.parameters["w"][0] = 0.6
    loop, _ = trainer()
    train(loop, session, feed(), target=2)
    x, y = source(Line(), batch_size=100, seed=0).batch(0)
    assert session.sent[0][0]["w"] == pytest.approx(float(np.mean(2 * (0.6 * x - y) * x)), rel=1e-5)
    assert session.sent[0][0]["b"] == pytest.approx(float(np.mean(2 * (0.6 * x - y))), rel=1e-5)


def test_outcomes_are_counted() -> None:
    loop, progress = trainer()
    train(loop, FakeSession(3, ("LATE", "APPLIED", "LATE")), feed(), target=3)
    assert progress.outcomes == {"APPLIED": 3, "LATE": 2}
    assert (progress.global_step, progress.local_steps) == (3, 5)


def test_a_gradient_that_did_not_count_has_no_loss() -> None:
    """A worker that came when the job was over computed it on the first values."""
    session = FakeSession(0, ("DONE",))
    loop, progress = trainer()
    train(loop, session, feed(), target=100)
    assert (progress.local_steps, progress.outcomes) == (1, {"DONE": 1})
    assert (progress.loss, progress.applied_step, session.told) == (None, None, (1, None))


def test_the_loss_is_that_of_the_last_applied_push() -> None:
    session = FakeSession(3, ("APPLIED", "LATE", "NON_FINITE"))
    loop, progress = trainer()
    train(loop, session, feed(), target=3)
    first, late, refused, *_ = (loss for _, loss in session.notes)
    assert float(first) == float(late) == float(refused) > float(session.notes[-1][1]) == progress.loss
    assert progress.applied_step == 3


def test_a_loss_goes_with_the_push_that_a_rollback_undoes() -> None:
    loop, progress = trainer()
    train(loop, FakeSession(3), feed(), target=9)
    assert progress.applied_step == 3
    session = FakeSession(2, ("LATE", "DONE"))
    session._step = 2
    train(loop, session, feed(), target=9)
    assert (progress.loss, progress.applied_step) == (None, None)


def test_with_overlap_every_push_but_the_first_is_of_the_release_before() -> None:
    loop, progress = trainer(overlap=True)
    session = FakeSession(1000)
    train(loop, session, feed(), target=1000)
    assert session.base_steps == [0, *range(999)]
    assert (progress.global_step, progress.local_steps, progress.outcomes) == (1000, 1000, {"APPLIED": 1000})
    assert session.parameters["w"][0] == pytest.approx(0.1, abs=0.0005)
    assert session.parameters["b"][0] == pytest.approx(0.3, abs=0.0005)


def test_with_overlap_the_gradient_is_that_of_the_parameters_before() -> None:
    session = FakeSession(2)
    session.parameters["w"][0] = 0.6
    train(trainer(overlap=True)[0], session, feed(), target=2)
    x, y = source(Line(), batch_size=100, seed=0).batch(1)
    assert session.sent[1][0]["w"] == pytest.approx(float(np.mean(2 * (0.6 * x - y) * x)), rel=1e-5)


def test_a_late_push_ends_the_overlap() -> None:
    session = FakeSession(6, ("APPLIED", "APPLIED", "LATE"))
    loop, progress = trainer(overlap=True)
    train(loop, session, feed(), target=6)
    assert session.base_steps == [0, 0, 1, 2, 3, 4, 5]
    assert progress.outcomes == {"APPLIED": 6, "LATE": 1}


@pytest.mark.parametrize("settings", [{"mode": "sync"}, {}])
def test_nothing_overlaps_in_rounds(settings: Mapping[str, Any]) -> None:
    session = FakeSession(3)
    session.settings = settings
    train(trainer(overlap=True)[0], session, feed(), target=3)
    assert session.base_steps == [0, 1, 2]


def test_non_finite_pushes_in_a_row_end_a_worker_that_overlaps() -> None:
    session = FakeSession(3, ("NON_FINITE",) * 9)
    with pytest.raises(NonFinite, match="5 pushes in a row"):
        train(trainer(overlap=True)[0], session, feed(), target=3)
    assert session.base_steps == [0] * NON_FINITE_LIMIT


def test_b91_non_finite_pushes_in_a_row_end_the_worker() -> None:
    refused = ("NON_FINITE",) * (NON_FINITE_LIMIT - 1)
    loop, progress = trainer()
    train(loop, FakeSession(3, (*refused, "APPLIED", *refused)), feed(), target=3)
    assert progress.outcomes["NON_FINITE"] == 2 * (NON_FINITE_LIMIT - 1)
    session = FakeSession(3, ("NON_FINITE",) * 9)
    with pytest.raises(NonFinite, match="5 pushes in a row had NaN or infinity in parameter 'w' at global step 0"):
        train(trainer()[0], session, feed(), target=3)
    assert len(session.sent) == NON_FINITE_LIMIT


def test_a_job_that_ends_otherwise_ends_the_worker_so() -> None:
    last = {"exit_code": 5, "reason": "parameter 'w' is not finite"}
    with pytest.raises(JobFailed, match="parameter 'w' is not finite") as caught:
        train(trainer()[0], FakeSession(2, last=last), feed(), target=9)
    assert caught.value.exit_code == 5


def test_a_job_that_is_done_at_once_has_no_steps() -> None:
    session = FakeSession(0)
    session.begin = lambda: reply(7, batch=None, done=True)  # type: ignore[method-assign]
    loop, progress = trainer()
    train(loop, session, feed(), target=7)
    assert (progress.global_step, progress.local_steps, progress.loss) == (7, 0, None)


def test_a_worker_whose_data_is_used_up_waits_for_the_end() -> None:
    left = [NumberedFeed(source(Line(), batch_size=10, seed=0)).take(number) for number in range(2)]

    class Short:
        prepared = None

        def prepare(self, number: int | None) -> None:
            pass

        def take(self, number: int) -> Fed | None:
            return left.pop(0) if left else None

    session = FakeSession(9)
    finished: list[int] = []

    def finish() -> SimpleNamespace:
        finished.append(len(session.sent))
        return reply(9, batch=None, done=True, reason="accuracy 0.98 >= 0.97 at step 9")

    session.finish = finish  # type: ignore[attr-defined]
    loop, progress = trainer()
    train(loop, session, Short(), target=9)
    assert finished == [2]
    assert (progress.global_step, progress.local_steps, progress.outcomes) == (9, 2, {"APPLIED": 2})
    assert progress.ended == "accuracy 0.98 >= 0.97 at step 9"


def test_a_worker_without_any_data_trains_nothing_and_ends_well() -> None:
    class Empty:
        def prepare(self, number: int | None) -> None:
            raise AssertionError("there is no step to prepare beside")

        def take(self, number: int) -> None:
            return None

    lines: list[str] = []
    session = FakeSession(9)
    session.finish = lambda: reply(4, batch=None, done=True)  # type: ignore[attr-defined]
    loop, progress = trainer(lines)
    train(loop, session, Empty(), target=9)
    progress.finish({})
    assert (progress.global_step, progress.local_steps, session.sent) == (4, 0, [])
    assert "target step 4 already reached: global_step 4, local_step 0, loss = none" in lines[-1]


def test_only_the_evaluator_evaluates() -> None:
    asked: list[int] = []
    session = FakeSession(4)
    train(trainer(evaluate=asked.append)[0], session, feed(), target=4)
    assert asked == []
    session = FakeSession(4)
    session.evaluator = True
    train(trainer(evaluate=asked.append)[0], session, feed(), target=4)
    assert asked == [1, 2, 3, 4]
