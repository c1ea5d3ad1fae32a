"""Evaluation of given values, beside training."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from queue import SimpleQueue
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.client import PsError
from grpc_ps.client.shared.errors import PeerLost
from grpc_ps.models.datasets import digits
from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.mnist import Mnist
from grpc_ps.worker.evaluation import Evaluation
from grpc_ps.worker.evaluator import Evaluator
from grpc_ps.worker.progress import Progress
from grpc_ps.worker.variables import read_values


class Sign:
    """Right where the feature has the sign of `k`."""

    def __init__(self) -> None:
        self.k = tf.Variable([0.0], name="k")
        self.variables = (self.k,)

    def metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        right = tf.equal(tf.sign(features * self.k), labels)
        return {"accuracy": tf.cast(right, tf.float32), "size": tf.abs(features)}


def signs(count: int) -> ArrayDataset:
    features = np.arange(1, count + 1, dtype=np.float32)
    return ArrayDataset(features, np.where(np.arange(count) < count // 4, 1.0, -1.0).astype(np.float32))


class FakeClient:
    def __init__(self, values: dict[str, Any], step: int = 7, error: PsError | None = None) -> None:
        self.values, self.step, self.error = values, step, error

    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pull(self, *, averages: bool) -> SimpleNamespace:
        assert averages
        if self.error is not None:
            raise self.error
        return SimpleNamespace(global_step=self.step, values=self.values)


Told = list[tuple[int, Mapping[str, float]] | str]


def evaluation(
    connect: Callable[[], FakeClient],
    every: int = 0,
    report: Callable[[int, Mapping[str, float]], None] = lambda global_step, metrics: None,
    evaluate: Evaluator | None = None,
) -> tuple[Evaluation, Told]:
    """With what it tells: step and metrics of each evaluation, or the text of its error."""
    told: Told = []
    made = Evaluation(
        evaluate or Evaluator(Sign(), signs(8)),
        connect,
        evaluated=lambda *what: told.append(what),
        failed=lambda error: told.append(str(error)),
    )
    made.begin(every, report)
    return made, told


def steps(told: Told) -> list[int]:
    return [each[0] for each in told if not isinstance(each, str)]


@pytest.mark.parametrize("count", [4, 2000, 2500])
def test_metrics_are_means_over_all_examples(count: int) -> None:
    evaluate = Evaluator(Sign(), signs(count))
    found = evaluate({"k": np.array([2.0], np.float32)})
    assert found == {"accuracy": 0.25, "size": pytest.approx((count + 1) / 2)}
    assert evaluate({"k": np.array([-2.0], np.float32)})["accuracy"] == 0.75


def test_pixels_are_scaled_as_in_training() -> None:
    model, data = Mnist(hidden=8), digits.load().test
    assert data is not None
    model.initialize(3)
    pixels, classes = data.take(np.arange(data.examples))
    metrics = model.metrics(tf.constant(pixels.astype(np.float32) / 255), tf.constant(classes))
    found = Evaluator(Mnist(hidden=8), data)(read_values(model.variables))
    assert found["accuracy"] == pytest.approx(float(metrics["accuracy"].numpy().mean()), abs=1e-9)


def test_an_evaluation_that_is_stopped_has_no_result() -> None:
    assert Evaluator(Sign(), signs(8))({"k": np.array([1.0], np.float32)}, stop=lambda: True) == {}


def test_names_of_the_metrics() -> None:
    assert Evaluator(Sign(), signs(8)).names() == ["accuracy", "size"]


def test_one_snapshot_is_evaluated_told_and_reported() -> None:
    reported: list[tuple[int, Mapping[str, float]]] = []
    client = FakeClient({"k": np.array([1.0], np.float32)})
    evaluate, told = evaluation(lambda: client, report=lambda *what: reported.append(what))
    assert evaluate.last(7, 30)["accuracy"] == 0.25
    assert reported == [(7, {"accuracy": 0.25, "size": 4.5})]
    assert told == [(7, {"accuracy": 0.25, "size": 4.5})]


class Ours(Sign):
    """Its metrics have names that what is told of an evaluation has too."""

    def metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        ones = tf.ones_like(features)
        return {"global_step": 3 * ones, "error": 4 * ones, "worker": 5 * ones}


def test_metrics_may_have_any_name() -> None:
    found = {"global_step": 3.0, "error": 4.0, "worker": 5.0}
    reported: list[tuple[int, Mapping[str, float]]] = []
    evaluate, told = evaluation(
        lambda: FakeClient({"k": np.array([1.0], np.float32)}),
        report=lambda *what: reported.append(what),
        evaluate=Evaluator(Ours(), signs(8)),
    )
    assert evaluate.last(7, 30) == found
    assert told == reported == [(7, found)]
    lines: list[str] = []
    Progress(lines.append).evaluated(7, found)
    assert lines[0].endswith("evaluation at global_step 7: global_step = 3, error = 4, worker = 5")


def test_the_last_step_is_not_evaluated_twice() -> None:
    evaluate, told = evaluation(lambda: FakeClient({"k": np.array([1.0], np.float32)}), every=7)
    evaluate.maybe(7)
    assert evaluate.last(7, 30)["accuracy"] == 0.25
    assert len(told) == 1
    assert evaluate.last(8, 30)["accuracy"] == 0.25
    assert len(told) == 2


def test_an_error_of_the_model_ends_that_evaluation_only() -> None:
    evaluate, told = evaluation(lambda: FakeClient({"j": np.array([1.0], np.float32)}))
    assert evaluate.last(7, 30) == {}
    assert told == ["KeyError: 'k'"]


def test_a_lost_server_ends_that_evaluation_only() -> None:
    evaluate, told = evaluation(lambda: FakeClient({}, error=PeerLost("gone")))
    assert evaluate.last(7, 30) == {}
    assert told == ["gone"]


class SlowClient:
    """Makes clients whose snapshots a test lets through one by one; each has the step that the test says."""

    def __init__(self) -> None:
        self.began, self._steps = threading.Semaphore(0), SimpleQueue[int]()

    def __call__(self) -> FakeClient:
        self.began.release()
        return FakeClient({"k": np.array([1.0], np.float32)}, step=self._steps.get(timeout=30))

    def let(self, step: int) -> None:
        self._steps.put(step)


def test_training_never_waits_and_the_next_evaluation_begins_when_one_ends() -> None:
    connect = SlowClient()
    evaluate, told = evaluation(connect, every=10)
    for step in (1, 9, 10, 11, 20, 35):
        evaluate.maybe(step)
    assert connect.began.acquire(timeout=30)
    assert not told
    assert not connect.began.acquire(blocking=False)
    connect.let(12)
    # 20 and 30 have passed meanwhile: one more, at once, which sees step 36.
    assert connect.began.acquire(timeout=30)
    connect.let(36)
    evaluate.finish(30)
    assert steps(told) == [12, 36]
    evaluate.maybe(39)
    assert not connect.began.acquire(blocking=False)
    evaluate.maybe(40)
    connect.let(41)
    evaluate.finish(30)
    assert steps(told) == [12, 36, 41]


def test_a_snapshot_that_is_beyond_the_next_due_step_stands_for_it() -> None:
    connect = SlowClient()
    evaluate, told = evaluation(connect, every=10)
    evaluate.maybe(10)
    connect.let(25)
    evaluate.finish(30)
    evaluate.maybe(29)
    evaluate.finish(30)
    assert steps(told) == [25]


def test_closing_ends_an_evaluation_and_begins_no_other() -> None:
    connect = SlowClient()
    evaluate, told = evaluation(connect, every=10)
    evaluate.maybe(10)
    evaluate.maybe(20)
    assert connect.began.acquire(timeout=30)
    closing = threading.Thread(target=evaluate.close, daemon=True)
    closing.start()
    assert evaluate._closed.wait(30)
    connect.let(20)
    closing.join(30)
    assert not closing.is_alive()
    assert told == []
    assert not connect.began.acquire(blocking=False)


def test_nothing_begins_once_it_is_closed() -> None:
    connect = SlowClient()
    evaluate, told = evaluation(connect, every=1)
    evaluate.close()
    evaluate.maybe(5)
    assert evaluate.last(5, 30) == {}
    evaluate.finish(30)
    assert not connect.began.acquire(blocking=False)
    assert told == []


def test_the_last_evaluation_is_the_only_one_while_it_runs() -> None:
    """A heartbeat of the job's end may find another one due."""
    connect = SlowClient()
    evaluate, told = evaluation(connect, every=1)
    ending = threading.Thread(target=evaluate.last, args=(9, 30), daemon=True)
    ending.start()
    assert connect.began.acquire(timeout=30)
    evaluate.maybe(8)
    evaluate.finish(30)
    assert not connect.began.acquire(blocking=False)
    connect.let(9)
    ending.join(30)
    assert not ending.is_alive()
    assert steps(told) == [9]


def test_the_last_evaluation_waits_for_the_one_that_runs() -> None:
    connect = SlowClient()
    evaluate, told = evaluation(connect, every=1)
    evaluate.maybe(8)
    assert connect.began.acquire(timeout=30)
    assert evaluate.last(9, 0.01) == {}
    assert not connect.began.acquire(blocking=False)
    ending = threading.Thread(target=evaluate.last, args=(9, 30), daemon=True)
    ending.start()
    connect.let(8)
    assert connect.began.acquire(timeout=30)
    connect.let(9)
    ending.join(30)
    assert not ending.is_alive()
    assert steps(told) == [8, 9]
    assert not connect.began.acquire(blocking=False)


def test_evaluation_can_be_off() -> None:
    def connect() -> FakeClient:
        raise AssertionError("not asked for")

    evaluate, told = evaluation(connect, every=0)
    for step in range(100):
        evaluate.maybe(step)
    evaluate.close()
    assert told == []
