"""Update rules, weight decay and clipping, against what TensorFlow's own optimizers make of the same gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf
from updated_shards import UpdatedShards

from grpc_ps.psserver.lead.schedule import schedule

STEPS = 20
# Keras's Adam has 1 - beta in float64 where the fused kernel, TensorFlow's own, has it in float32: that is 2e-5 of a
# step. With 20 steps of this size it stays below 1e-6.
RATE = 0.005
# The last one is cut into 13 blocks.
SHAPES = {"a": (), "b": (7,), "c": (0,), "d": (33, 2, 17), "e": (400, 500)}
keras = tf.keras.optimizers
Stated = dict[str, Any]
Theirs = Callable[..., Any]


def sgd(rate: Any, **more: Any) -> Any:
    return keras.SGD(rate, **more)


def adam(rate: Any, **more: Any) -> Any:
    return keras.Adam(rate, **more)


def momentum(rate: Any, **more: Any) -> Any:
    return keras.SGD(rate, momentum=0.9, **more)


def nesterov(rate: Any, **more: Any) -> Any:
    return keras.SGD(rate, momentum=0.8, nesterov=True, **more)


def adagrad(rate: Any, **more: Any) -> Any:
    return keras.Adagrad(rate, initial_accumulator_value=0.1, epsilon=0.0, **more)


def adamw(rate: Any, **more: Any) -> Any:
    return keras.AdamW(rate, **{"weight_decay": 0.004, **more})


def rmsprop(rate: Any, **more: Any) -> Any:
    return keras.RMSprop(rate, **more)


def rmsprop_momentum(rate: Any, **more: Any) -> Any:
    return keras.RMSprop(rate, rho=0.8, momentum=0.7, epsilon=1e-5, **more)


def ftrl(rate: Any, **more: Any) -> Any:
    return keras.Ftrl(rate, **more)


def ftrl_regularised(rate: Any, **more: Any) -> Any:
    return keras.Ftrl(rate, l1_regularization_strength=0.2, l2_regularization_strength=0.05, **more)


RULES: dict[str, tuple[Stated, Theirs]] = {
    "sgd": ({"optimizer": "sgd"}, sgd),
    "momentum": ({"optimizer": "momentum"}, momentum),
    "nesterov": ({"optimizer": "momentum", "momentum": 0.8, "nesterov": True}, nesterov),
    "adagrad": ({"optimizer": "adagrad"}, adagrad),
    "adam": ({"optimizer": "adam"}, adam),
    "adamw": ({"optimizer": "adamw"}, adamw),
    "rmsprop": ({"optimizer": "rmsprop"}, rmsprop),
    "rmsprop-momentum": ({"optimizer": "rmsprop", "rho": 0.8, "momentum": 0.7, "epsilon": 1e-5}, rmsprop_momentum),
    "ftrl": ({"optimizer": "ftrl"}, ftrl),
    "ftrl-l1-l2": ({"optimizer": "ftrl", "l1": 0.2, "l2": 0.05}, ftrl_regularised),
}

MORE: dict[str, tuple[Stated, Stated]] = {
    "decay": ({"weight_decay": 0.1}, {"weight_decay": 0.1}),
    "clip_value": ({"clip_value": 0.3}, {"clipvalue": 0.3}),
    "clip_norm": ({"clip_norm": 2.0}, {"clipnorm": 2.0}),
    "global_clip_norm": ({"global_clip_norm": 40.0}, {"global_clipnorm": 40.0}),
    "decay-clip_norm": ({"weight_decay": 0.1, "clip_norm": 2.0}, {"weight_decay": 0.1, "clipnorm": 2.0}),
}

CASES = [
    *((name, "") for name in RULES),
    *(("sgd", more) for more in MORE),
    *(("adam", more) for more in MORE),
    ("ftrl-l1-l2", "decay"),
    ("rmsprop-momentum", "global_clip_norm"),
]


def arrays(rng: np.random.Generator, size: float = 1.0) -> dict[str, np.ndarray]:
    return {name: np.asarray(rng.normal(size=shape) * size, np.float32) for name, shape in SHAPES.items()}


def check_equal(stated: Stated, theirs: Any, rates: Callable[[int], float], shards: int = 2) -> None:
    """Twenty steps with gradients of changing size, here and in TensorFlow: equal to 1e-6."""
    rng = np.random.default_rng(3)
    first = arrays(rng)
    ours = UpdatedShards(first, shards, **stated)
    variables = {name: tf.Variable(array, name=name) for name, array in first.items()}
    for step in range(STEPS):
        gradients = arrays(rng, rng.uniform(0.05, 3.0))
        ours.update([gradients], [1.0], rates(step))
        theirs.apply_gradients([(tf.constant(gradients[name]), variables[name]) for name in SHAPES])
    for name, array in ours.values().items():
        expected = variables[name].numpy()
        np.testing.assert_allclose(array, expected, rtol=1e-6, atol=1e-6, err_msg=name)
        assert not array.size or np.abs(array - first[name]).max() > 100e-6


@pytest.mark.parametrize(("rule", "more"), CASES)
def test_a_rule_equals_tensorflows_own_optimizer(rule: str, more: str) -> None:
    stated, theirs = RULES[rule]
    ours_more, theirs_more = MORE.get(more, ({}, {}))
    check_equal({**stated, **ours_more}, theirs(RATE, **theirs_more), lambda step: RATE)


@pytest.mark.parametrize("rule", ["sgd", "adam", "adamw", "rmsprop-momentum", "ftrl-l1-l2"])
def test_the_rate_may_change_from_step_to_step(rule: str) -> None:
    stated, theirs = RULES[rule]
    decay = keras.schedules.ExponentialDecay(RATE, 7, 0.5)
    check_equal(stated, theirs(decay), schedule("exponential:7:0.5", RATE))


@pytest.mark.parametrize("rule", RULES)
def test_a_rate_of_zero_moves_no_value(rule: str) -> None:
    rng = np.random.default_rng(3)
    first = arrays(rng)
    ours = UpdatedShards(first, weight_decay=0.1, **RULES[rule][0])
    ours.update([arrays(rng)], [1.0], 0.0)
    for name, array in ours.values().items():
        assert array.tobytes() == first[name].tobytes()


@pytest.mark.parametrize(
    ("rule", "more"), [*((rule, "decay") for rule in RULES), *(("momentum", more) for more in MORE)]
)
@pytest.mark.parametrize("pushes", [1, 3])
def test_the_number_of_shards_changes_no_bit(rule: str, more: str, pushes: int) -> None:
    """One block, runs of blocks, or blocks that lie here and there: also squares and factors are the same bits."""
    rng = np.random.default_rng(7)
    first = arrays(rng)
    jobs = [UpdatedShards(first, shards, **RULES[rule][0], **MORE[more][0]) for shards in (1, 2, 3, 5)]
    weights = [float(np.float32(1 / pushes))] * pushes
    for _ in range(3):
        round_of = [arrays(rng, 2.0) for _ in range(pushes)]
        for job in jobs:
            job.update(round_of, weights, 0.05)
    expected = {name: array.tobytes() for name, array in jobs[0].values().items()}
    for job in jobs[1:]:
        assert {name: array.tobytes() for name, array in job.values().items()} == expected


@pytest.mark.parametrize("more", ["decay", "clip_value", "clip_norm", "global_clip_norm"])
def test_deltas_of_what_is_not_trainable_are_neither_clipped_nor_decayed(more: str) -> None:
    values = {"frozen": np.full(3, 10.0, np.float32), "w": np.full(3, 10.0, np.float32)}
    job = UpdatedShards(values, 1, frozen=["frozen"], optimizer="sgd", **MORE[more][0])
    job.update([{"frozen": np.full(3, 100.0, np.float32), "w": np.full(3, 100.0, np.float32)}], [1.0], 1.0)
    assert job.values()["frozen"].tolist() == [110.0] * 3
    assert abs(job.values()["w"][0] - 10.0) < (102.0 if more == "decay" else 100.0)


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
@pytest.mark.parametrize("rule", RULES)
def test_a_rule_works_on_every_floating_type(rule: str, dtype: str) -> None:
    import ml_dtypes

    kind = ml_dtypes.bfloat16 if dtype == "bfloat16" else np.dtype(dtype)
    job = UpdatedShards({"w": np.ones(4, kind)}, weight_decay=0.5, clip_norm=1.0, **RULES[rule][0])
    job.update([{"w": np.full(4, 2.0, kind)}], [1.0], 0.25)
    assert job.values()["w"].dtype == kind
    assert (job.values()["w"].astype(float) < 0.9).all()
