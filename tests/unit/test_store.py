"""Blocks and update rules, against what TensorFlow's own optimizers make of the same gradients."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.image import aligned_buffer
from grpc_ps.protos.job_pb2 import Settings
from grpc_ps.psserver.lead.settings import DEFAULTS
from grpc_ps.psserver.store import Store, tensor_of

STEPS = 20
RATE = 0.001
keras = tf.keras.optimizers


def settings(**changes: Any) -> Settings:
    return Settings(**{**DEFAULTS, **changes})


def store_of(value: np.ndarray, trainable: bool = True, **changes: Any) -> Store:
    spec = ParameterSpec(name="w", shape=value.shape, dtype=value.dtype.name, trainable=trainable)
    (blocks,) = place([spec], 1).shards
    return Store(blocks, [value[block.start : block.stop] for block in blocks], settings(**changes))


def values(store: Store, dtype: str = "float32") -> np.ndarray:
    return np.concatenate([np.frombuffer(buffer, dtype) for buffer in store.read()])


@pytest.mark.parametrize(
    ("changes", "theirs"),
    [
        ({"optimizer": "sgd"}, lambda: keras.SGD(RATE)),
        ({"optimizer": "momentum"}, lambda: keras.SGD(RATE, momentum=0.9)),
        ({"optimizer": "momentum", "nesterov": True}, lambda: keras.SGD(RATE, momentum=0.9, nesterov=True)),
        ({"optimizer": "adagrad"}, lambda: keras.Adagrad(RATE, initial_accumulator_value=0.1, epsilon=0.0)),
        ({"optimizer": "adam"}, lambda: keras.Adam(RATE)),
    ],
)
def test_a_rule_equals_tensorflows_own_optimizer(changes: dict[str, Any], theirs: Any) -> None:
    rng = np.random.default_rng(3)
    first = rng.normal(size=200_000).astype(np.float32)
    store = store_of(first, **changes)
    variable, optimizer = tf.Variable(first), theirs()
    for _ in range(STEPS):
        gradient = rng.normal(size=first.shape).astype(np.float32)
        optimizer.apply_gradients([(tf.constant(gradient), variable)])
        (blocks,) = place([ParameterSpec(name="w", shape=first.shape, dtype="float32")], 1).shards
        store.apply([gradient[block.start : block.stop] for block in blocks], RATE)
    np.testing.assert_allclose(values(store), variable.numpy(), rtol=1e-6, atol=1e-6)


def test_momentum_advances_once_a_round() -> None:
    """Fault B32: velocity 3 then 5.7 with the mean gradient 3."""
    store = store_of(np.zeros(1, np.float32), optimizer="momentum")
    store.apply([np.array([3.0], np.float32)], 0.1)
    assert values(store)[0] == pytest.approx(-0.3, abs=1e-6)
    store.apply([np.array([3.0], np.float32)], 0.1)
    assert values(store)[0] == pytest.approx(-0.87, abs=1e-6)


def test_what_was_read_does_not_change_with_later_updates() -> None:
    for size in (1, 10_000):
        store = store_of(np.ones(size, np.float32), optimizer="sgd")
        before = store.read()
        store.apply([np.ones(size, np.float32)], 0.5)
        assert set(np.frombuffer(before[0], np.float32)) == {1.0}
        assert set(values(store)) == {0.5}


def test_first_values_are_copied() -> None:
    memory = aligned_buffer(400).view(np.float32)
    store = store_of(memory, optimizer="sgd")
    memory[...] = 7
    assert set(values(store)) == {0.0}


def test_deltas_of_what_is_not_trainable_are_added() -> None:
    store = store_of(np.ones(3, np.float32), trainable=False, optimizer="adam")
    store.apply([np.full(3, 0.25, np.float32)], 0.1)
    assert values(store).tolist() == [1.25] * 3


def test_integers_are_held_and_never_updated() -> None:
    store = store_of(np.arange(3, dtype=np.int64), trainable=False)
    store.apply([], 0.1)
    assert values(store, "int64").tolist() == [0, 1, 2]


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16", "bfloat16", "int32", "int64", "bool"])
@pytest.mark.parametrize("skip", [0, 8])
def test_every_type_becomes_a_tensor_whatever_its_address(dtype: str, skip: int) -> None:
    import ml_dtypes

    kind = np.dtype(ml_dtypes.bfloat16) if dtype == "bfloat16" else np.dtype(dtype)
    array = aligned_buffer(skip + 16 * kind.itemsize)[skip:].view(kind)
    array[...] = 1
    tensor = tensor_of(array)
    assert tensor.dtype.name == dtype
    assert tensor.numpy().tolist() == array.tolist()


def test_an_aligned_array_is_not_copied() -> None:
    array = aligned_buffer(4096).view(np.float32)
    tensor = tensor_of(array)
    array[0] = 5
    assert tensor.numpy()[0] == 5
