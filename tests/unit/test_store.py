"""Blocks in memory: what is copied, what is shared, what an update changes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from grpc_ps.client.shared.blocks import Block, ParameterSpec, cut, place
from grpc_ps.client.shared.image import aligned_buffer
from grpc_ps.client.shared.job_flags import OPTIMIZERS
from grpc_ps.protos.job_pb2 import Settings
from grpc_ps.psserver.checkpoint import BlockValues
from grpc_ps.psserver.lead.settings import DEFAULTS
from grpc_ps.psserver.store import Store, tensor_of


def settings(**changes: Any) -> Settings:
    return Settings(**{**DEFAULTS, **changes})


def store_of(value: np.ndarray, trainable: bool = True, **changes: Any) -> Store:
    spec = ParameterSpec(name="w", shape=value.shape, dtype=value.dtype.name, trainable=trainable)
    (blocks,) = place([spec], 1).shards
    return Store(blocks, [BlockValues(value[block.start : block.stop], {}) for block in blocks], settings(**changes))


def update(store: Store, gradients: list[np.ndarray], rate: float) -> None:
    """Applies gradients from memory like that of a place."""
    aligned = []
    for gradient in gradients:
        memory = aligned_buffer(gradient.nbytes).view(gradient.dtype)
        memory[...] = gradient
        aligned.append(memory)
    store.apply(store.operands(aligned), rate)


def values(store: Store, dtype: str = "float32") -> np.ndarray:
    return np.concatenate([np.frombuffer(buffer, dtype) for buffer in store.read()])


def test_momentum_advances_once_a_round() -> None:
    """Fault B32: velocity 3 then 5.7 with the mean gradient 3."""
    store = store_of(np.zeros(1, np.float32), optimizer="momentum")
    update(store, [np.array([3.0], np.float32)], 0.1)
    assert values(store)[0] == pytest.approx(-0.3, abs=1e-6)
    update(store, [np.array([3.0], np.float32)], 0.1)
    assert values(store)[0] == pytest.approx(-0.87, abs=1e-6)


def test_what_was_read_does_not_change_with_later_updates() -> None:
    for size in (1, 10_000):
        store = store_of(np.ones(size, np.float32), optimizer="sgd")
        before = store.read()
        update(store, [np.ones(size, np.float32)], 0.5)
        assert set(np.frombuffer(before[0], np.float32)) == {1.0}
        assert set(values(store)) == {0.5}


def test_first_values_are_copied() -> None:
    memory = aligned_buffer(400).view(np.float32)
    store = store_of(memory, optimizer="sgd")
    memory[...] = 7
    assert set(values(store)) == {0.0}


def test_deltas_of_what_is_not_trainable_are_added() -> None:
    store = store_of(np.ones(3, np.float32), trainable=False, optimizer="adam")
    update(store, [np.full(3, 0.25, np.float32)], 0.1)
    assert values(store).tolist() == [1.25] * 3


def test_integers_are_held_and_never_updated() -> None:
    store = store_of(np.arange(3, dtype=np.int64), trainable=False)
    update(store, [], 0.1)
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


def test_operands_follow_their_memory_and_must_be_aligned() -> None:
    store = store_of(np.zeros(32, np.float32), optimizer="sgd")
    memory = aligned_buffer(192).view(np.float32)
    operands = store.operands([memory[:32]])
    for expected in (-1.0, -3.0):
        memory[:32] = 1.0 if expected == -1.0 else 2.0
        store.apply(operands, 1.0)
        assert set(values(store)) == {expected}
    with pytest.raises(ValueError, match="multiples of 64"):
        store.operands([memory[1:33]])


@pytest.mark.parametrize("weight_decay", [0.0, 0.1])
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_cuts_change_no_bit(optimizer: str, weight_decay: float) -> None:
    """Shards hold a parameter as one block or as pieces; the results are the same bits."""
    rng = np.random.default_rng(7)
    size = 300_001
    first, gradient = rng.normal(size=(2, size)).astype(np.float32)
    pieces = [slice(block.start, block.stop) for block in cut(ParameterSpec(name="w", shape=(size,), dtype="float32"))]
    whole = Store(
        [Block("w", 0, size, "float32", True)],
        [BlockValues(first, {})],
        settings(optimizer=optimizer, weight_decay=weight_decay),
    )
    parts = Store(
        [Block("w", it.start, it.stop, "float32", True) for it in pieces],
        [BlockValues(first[it], {}) for it in pieces],
        settings(optimizer=optimizer, weight_decay=weight_decay),
    )
    for _ in range(5):
        update(whole, [gradient], 0.1)
        update(parts, [gradient[it] for it in pieces], 0.1)
    assert len(pieces) > 10
    assert values(whole).tobytes() == values(parts).tobytes()


def test_decay_leaves_what_was_read_and_what_is_not_trainable() -> None:
    for trainable, expected in ((True, 0.5), (False, 1.0)):
        store = store_of(np.ones(10_000, np.float32), trainable, optimizer="sgd", weight_decay=1.0)
        before = store.read()
        update(store, [np.zeros(10_000, np.float32)], 0.5)
        assert set(np.frombuffer(before[0], np.float32)) == {1.0}
        assert set(values(store)) == {expected}
