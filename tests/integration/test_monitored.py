"""Sessions of programs with a loop of their own, on real servers in this process."""

from __future__ import annotations

import math
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from keras_models import cnn, images
from light_worker import DEADLINE
from local_cluster import LocalCluster
from recovery_bed import RecoveryBed

from grpc_ps.client import PSClient
from grpc_ps.client.jobs import JobRequest
from grpc_ps.client.shared.errors import DataError, Mismatch, PeerLost, UsageError
from grpc_ps.models.linear import Linear
from grpc_ps.worker import (
    CheckpointSaverHook,
    EvaluationHook,
    Hook,
    MonitoredSession,
    StepResult,
    StopAtStepHook,
    SummarySaverHook,
)


class Point:
    """A line's two variables and the loss of a batch."""

    def __init__(self, w: float = 0.0) -> None:
        self.w, self.b = tf.Variable([w], name="w"), tf.Variable([0.0], name="b")

    def losses(self, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return tf.square(self.w * x + self.b - y)

    @property
    def variables(self) -> list[tf.Variable]:
        return [self.w, self.b]


def batch(seed: int) -> tuple[np.ndarray, np.ndarray]:
    x = np.random.default_rng(seed).random(50, dtype=np.float32)
    return x, np.float32(0.1) * x + np.float32(0.3)


def fed(cluster: Any, point: Point, **more: Any) -> MonitoredSession:
    settings = {"optimizer": "sgd", "learning_rate": 0.5, **more}
    return MonitoredSession(cluster.addresses, point.losses, variables=point.variables, **settings)


class Told(Hook):
    """Notes what it is told."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.results: list[StepResult] = []

    def begin(self, session: MonitoredSession) -> None:
        self.calls.append(f"begin {session.global_step}")

    def before_step(self, session: MonitoredSession) -> None:
        self.calls.append("before")

    def after_step(self, session: MonitoredSession, result: StepResult) -> None:
        self.calls.append(f"after {result.global_step}")
        self.results.append(result)

    def end(self, session: MonitoredSession) -> None:
        self.calls.append("end")


def test_a_programs_own_batches_are_trained_on_to_the_last_step() -> None:
    """Each step equals gradient descent by hand, bit for bit within float32's last places."""
    point, told = Point(-0.5), Told()
    w, b = -0.5, 0.0
    with LocalCluster(2) as cluster:
        with fed(cluster, point, hooks=[StopAtStepHook(4), told]) as session:
            assert (session.global_step, session.worker, session.settings["steps"]) == (0, 0, 4)
            number = 0
            while not session.should_stop():
                x, y = batch(number)
                error = w * x + b - y
                result = session.run_step(x, y)
                assert result.loss == pytest.approx(float(np.mean(error**2)), rel=1e-5)
                w, b = w - 0.5 * 2 * float(np.mean(error * x)), b - 0.5 * 2 * float(np.mean(error))
                assert result.values == pytest.approx({"w": w, "b": b}, rel=1e-5)
                assert (float(point.w[0]), session.parameters["b"].item()) == (result.values["w"], result.values["b"])
                number += 1
            assert (number, result.outcome, result.done, session.global_step) == (4, "APPLIED", True, 4)
        assert cluster.wait_ended() == [None, None]
    assert told.calls == ["begin 0", *(f"{word}" for n in (1, 2, 3, 4) for word in ("before", f"after {n}")), "end"]
    assert [each.local_step for each in told.results] == [1, 2, 3, 4]


def test_two_sessions_train_one_model_in_rounds_and_agree() -> None:
    found: dict[int, list[StepResult]] = {}
    with LocalCluster(presets={"mode": "sync", "workers": 2}) as cluster:

        def train(index: int) -> None:
            with fed(cluster, Point(), hooks=[StopAtStepHook(5)], index=index) as session:
                found[index] = []
                while not session.should_stop():
                    found[index].append(session.run_step(*batch(10 * index + session.global_step)))

        threads = [threading.Thread(target=train, args=(index,), daemon=True) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(DEADLINE)
            assert not thread.is_alive()
        assert cluster.wait_ended() == [None]
    assert [each.global_step for each in found[0]] == [1, 2, 3, 4, 5]
    assert [each.values for each in found[0]] == [each.values for each in found[1]]


def test_a_session_that_stops_early_leaves_the_job_to_others() -> None:
    with LocalCluster() as cluster:
        with fed(cluster, Point(), hooks=[StopAtStepHook(3)]) as first:
            first.run_step(*batch(0))
            first.request_stop()
            assert first.should_stop()
        seen = []
        with suppress(ZeroDivisionError), fed(cluster, Point(9.0)) as second:
            seen.append((second.global_step, second.parameters["w"].item() != 9.0))
            raise ZeroDivisionError
        assert seen == [(1, True)]
        with pytest.raises(Mismatch, match="steps: the job has 3, this worker has 5"):
            fed(cluster, Point(), hooks=[StopAtStepHook(5)]).__enter__()
        with fed(cluster, Point()) as third:
            while not third.should_stop():
                third.run_step(*batch(third.global_step))
        assert third.global_step == 3
        assert cluster.wait_ended() == [None]


def test_a_shard_that_is_lost_is_found_again_within_a_step(tmp_path: Path) -> None:
    """The cluster goes back to the checkpoint that a hook had asked for; the program sees only a lower global step."""
    point = Point()
    with RecoveryBed(tmp_path, shards=2) as cluster:
        hooks = [StopAtStepHook(8), CheckpointSaverHook(every_steps=3)]
        with fed(cluster, point, hooks=hooks) as session:
            steps = [session.run_step(*batch(number)).global_step for number in range(5)]
            cluster.kill(1)
            cluster.start(1)
            while not session.should_stop():
                steps.append(session.run_step(*batch(len(steps))).global_step)
        assert steps == [1, 2, 3, 4, 5, 4, 5, 6, 7, 8]


def test_the_models_own_data_its_evaluation_and_summaries(tmp_path: Path) -> None:
    evaluated: list[tuple[int, float]] = []

    def found(global_step: int, metrics: Any) -> None:
        evaluated.append((global_step, metrics["error"]))

    x, y = batch(0)
    hooks = [StopAtStepHook(20), EvaluationHook(10, found=found), SummarySaverHook(tmp_path, every_steps=5)]
    with (
        LocalCluster() as cluster,
        MonitoredSession(cluster.addresses, Linear, data=True, test=(x, y), hooks=hooks) as session,
    ):
        with pytest.raises(UsageError, match="run_step takes nothing: the session has data; it got 2 arguments"):
            session.run_step(x, y)
        while not session.should_stop():
            session.run_step()
    assert [folder.name for folder in tmp_path.glob("worker-*") if any(folder.iterdir())] == ["worker-0"]
    assert evaluated[-1][0] == 20
    assert 0 <= evaluated[-1][1] < 1


def test_a_keras_model_of_a_notebook_begins_with_the_values_that_it_has() -> None:
    model = cnn()
    first = model.get_weights()
    features, labels = images(0)
    with LocalCluster() as cluster, MonitoredSession(cluster.addresses, model, hooks=[StopAtStepHook(3)]) as session:
        assert [values.tolist() for values in session.parameters.values()] == [each.tolist() for each in first]
        losses = []
        while not session.should_stop():
            losses.append(session.run_step(features[:32], labels[:32]).loss)
    assert losses[0] > losses[-1]
    assert model.evaluate(features[:32], labels[:32], verbose=0) != pytest.approx(losses[0])


def test_what_is_no_batch_is_refused_and_the_session_goes_on() -> None:
    with LocalCluster() as cluster, fed(cluster, Point(), hooks=[StopAtStepHook(2)]) as session:
        for arguments in ((), (1.0,), (1.0, 2.0, 3.0)):
            with pytest.raises(UsageError, match="run_step takes features and labels"):
                session.run_step(*arguments)
        with pytest.raises(DataError, match="run_step: a batch has features of shape"):
            session.run_step(np.ones(3, np.float32), np.ones(2, np.float32))
        assert (session.should_stop(), session.run_step(*batch(0)).global_step) == (False, 1)
        with pytest.raises(DataError, match=r"run_step: a batch of features float32\[2\] .* after others of"):
            session.run_step(np.ones((3, 2), np.float32), np.ones(3, np.float32))
        assert session.run_step(*batch(1)).global_step == 2


def test_a_step_that_has_failed_is_no_end_of_the_job_and_fails_again() -> None:
    with LocalCluster() as cluster, fed(cluster, Point(), hooks=[StopAtStepHook(2)]) as session:
        for _ in range(2):
            with pytest.raises(UsageError, match="float64"):
                session.run_step(np.ones(3), np.ones(3))
            assert not session.should_stop()


def test_a_job_that_was_over_before_stops_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Jobs that wait for workers which stand by are passed over, and the worker looks whether there are any."""
    passed_over: list[list[str]] = []
    monkeypatch.setattr(
        "grpc_ps.worker.run.note_queue", lambda jobs: passed_over.append([it.state for it in jobs.list()])
    )
    with LocalCluster(presets={"steps": 1}, keep_alive=True) as cluster:
        with fed(cluster, Point()) as session:
            session.run_step(*batch(0))
        with PSClient(cluster.addresses) as client:
            client.jobs.submit(JobRequest(model="linear"))
        trained = session.parameters["w"].tolist()
        assert trained != [0.0]
        point = Point(7.0)
        with fed(cluster, point) as late:
            assert (late.should_stop(), late.global_step) == (True, 1)
            assert math.isnan(late.run_step(*batch(1)).loss)
        assert point.w.numpy().tolist() == trained
    assert passed_over == [[], ["queued"]]


def test_a_job_whose_shards_are_gone_leaves_the_variables_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(client: PSClient) -> None:
        raise PeerLost("the shards have gone")

    with LocalCluster(presets={"steps": 1}, keep_alive=True) as cluster:
        with fed(cluster, Point()) as session:
            session.run_step(*batch(0))
        monkeypatch.setattr(PSClient, "pull", gone)
        point = Point(7.0)
        with fed(cluster, point) as late:
            assert late.should_stop()
        assert point.w.numpy().tolist() == [7.0]


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"learning_rat": 1}, r"learning_rat: is no setting of a job \(did you mean learning_rate\?\)"),
        ({"hooks": [StopAtStepHook(3)], "steps": 4}, "steps: a hook states 3, and 4 is stated too"),
        ({"hooks": [EvaluationHook(3)]}, "EvaluationHook: there is nothing to evaluate on"),
    ],
)
def test_settings_that_are_none_are_refused_before_anything_is_connected(settings: Any, says: str) -> None:
    point = Point()
    with pytest.raises(UsageError, match=says):
        MonitoredSession("127.0.0.1:1", point.losses, variables=point.variables, **settings)
