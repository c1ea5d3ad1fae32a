"""Moving averages of the parameters: TensorFlow's numbers, the same bits however the blocks lie."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from updated_shards import UpdatedShards, plan_of

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.psserver.checkpoint import BlockValues
from grpc_ps.psserver.lead.settings import complete
from grpc_ps.psserver.regions import region_values
from grpc_ps.psserver.store import Store

STEPS = 20
RATE = 0.05
# The last one is cut into 13 blocks.
SHAPES = {"a": (), "b": (7,), "c": (0,), "d": (33, 2, 17), "e": (400, 500)}
tf1 = tf.compat.v1


def arrays(rng: np.random.Generator) -> dict[str, np.ndarray]:
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in SHAPES.items()}


def of_tensorflow(first: np.ndarray, gradients: list[np.ndarray], decay: float) -> np.ndarray:
    """What the CIFAR-10 tutorial's train_op makes: the averages behind the update, with the global step."""
    with tf.Graph().as_default(), tf1.Session() as session:
        value = tf1.get_variable("w", initializer=first)
        step = tf1.train.get_or_create_global_step()
        gradient = tf1.placeholder(tf.float32, first.shape)
        applied = tf1.train.GradientDescentOptimizer(RATE).apply_gradients([(gradient, value)], global_step=step)
        with tf.control_dependencies([applied]):
            averages = tf1.train.ExponentialMovingAverage(decay, step)
            train = averages.apply([value])
        session.run(tf1.global_variables_initializer())
        for each in gradients:
            session.run(train, {gradient: each})
        found: np.ndarray = session.run(averages.average(value))
    return found


@pytest.mark.parametrize("decay", [0.9999, 0.5])
def test_the_averages_are_tensorflows(decay: float) -> None:
    rng = np.random.default_rng(3)
    first = arrays(rng)
    ours = UpdatedShards(first, 2, optimizer="sgd", moving_average=decay)
    pushes = [arrays(rng) for _ in range(STEPS)]
    for push in pushes:
        ours.update([push], [1.0], RATE)
    found, values = ours.values(averages=True), ours.values()
    for name, array in found.items():
        expected = of_tensorflow(first[name], [push[name] for push in pushes], decay)
        np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-6, err_msg=name)
        assert not array.size or np.abs(array - values[name]).max() > 1e-3


def test_before_the_first_update_the_averages_are_the_values() -> None:
    first = arrays(np.random.default_rng(3))
    ours = UpdatedShards(first, 2, optimizer="sgd", moving_average=0.9)
    assert {name: array.tobytes() for name, array in ours.values(averages=True).items()} == {
        name: array.tobytes() for name, array in first.items()
    }


@pytest.mark.parametrize("more", [{"optimizer": "sgd"}, {"optimizer": "adam", "weight_decay": 0.1, "clip_norm": 1.0}])
def test_averages_change_no_value_and_the_number_of_shards_no_average(more: dict[str, Any]) -> None:
    rng = np.random.default_rng(7)
    first = arrays(rng)
    without = UpdatedShards(first, 1, **more)
    jobs = [UpdatedShards(first, shards, moving_average=0.9, **more) for shards in (1, 2, 5)]
    for _ in range(3):
        push = arrays(rng)
        for job in (without, *jobs):
            job.update([push], [1.0], RATE)
    for averages, expected in ((False, without), (True, jobs[0])):
        bits = {name: array.tobytes() for name, array in expected.values(averages=averages).items()}
        for job in jobs:
            assert {name: array.tobytes() for name, array in job.values(averages=averages).items()} == bits


def test_what_is_not_trainable_has_no_average() -> None:
    values = {"frozen": np.full(3, 10.0, np.float32), "steps": np.zeros(2, np.int64), "w": np.full(3, 10.0, np.float32)}
    job = UpdatedShards(values, 1, frozen=["frozen", "steps"], optimizer="sgd", moving_average=0.5)
    job.update([{name: np.ones(len(array), array.dtype) for name, array in values.items()}], [1.0], 1.0)
    found = job.values(averages=True)
    assert found["frozen"].tolist() == [11.0] * 3
    assert found["steps"].tolist() == [0, 0]
    assert found["w"] == pytest.approx(9.0 + 2 / 11)


def test_averages_are_read_only_where_the_job_keeps_them() -> None:
    job = UpdatedShards({"w": np.ones(3, np.float32)}, 1, optimizer="sgd")
    job.update([{"w": np.ones(3, np.float32)}], [1.0], 0.5)
    assert job.values(averages=True)["w"].tolist() == job.values()["w"].tolist() == [0.5] * 3


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_an_average_has_the_type_of_its_parameter(dtype: str) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    job = UpdatedShards({"w": np.ones(4, kind)}, optimizer="sgd", moving_average=0.25)
    job.update([{"w": np.full(4, 2.0, kind)}], [1.0], 0.25)
    found = job.values(averages=True)["w"]
    assert found.dtype == kind
    # 2 / 11 of the first value 1, the rest of 0.5: the decay of the first update is below the one that is set.
    assert found.astype(float) == pytest.approx(0.5 + 0.5 * 2 / 11, rel=0.01)


def test_a_store_goes_on_from_what_it_saved() -> None:
    spec = ParameterSpec(name="w", shape=(300, 500), dtype="float32")
    plan = plan_of([spec], optimizer="momentum", moving_average=0.99)
    rng = np.random.default_rng(5)
    value = rng.normal(size=spec.size).astype(np.float32)

    def store(blocks: list[BlockValues], updates: int) -> Store:
        rest = iter(blocks)
        first = [region_values(region, [next(rest) for _ in region.blocks]) for region in plan.values.regions]
        return Store(plan.values, first, plan.job.settings, updates)

    one = store([BlockValues(value[block.start : block.stop], {}) for block in plan.values.blocks], 0)
    gradients = [rng.normal(size=region.size).astype(np.float32) for region in plan.gradients.regions]
    operands = [tf.constant(gradient) for gradient in gradients]
    one.apply(operands, RATE)
    saved = [
        BlockValues(
            np.frombuffer(held.value, np.float32),
            {name: np.frombuffer(data, np.float32) for name, data in held.slots.items()},
        )
        for held in one.state()
    ]
    assert {frozenset(block.slots) for block in saved} == {frozenset(Store.slots_of(plan.job.settings))}
    two = store(saved, 1)
    for each in (one, two):
        each.apply(operands, RATE)
    assert [bytes(part) for part in two.read(averages=True)] == [bytes(part) for part in one.read(averages=True)]
    assert [bytes(part) for part in two.read()] == [bytes(part) for part in one.read()]


def test_a_decay_is_from_0_and_below_1() -> None:
    assert complete({"moving_average": 0.0})["moving_average"] == 0.0
    for wrong in (1.0, -0.1, float("nan")):
        with pytest.raises(Exception, match=r"moving_average .* must be from 0 and below 1"):
            complete({"moving_average": wrong})
