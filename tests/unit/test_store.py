"""Blocks in memory: what is copied, what is shared, what an update changes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from grpc_ps.client.shared.blocks import Block, ParameterSpec, cut, place
from grpc_ps.client.shared.image import Layout, aligned_buffer, values_layout
from grpc_ps.client.shared.job_flags import OPTIMIZERS
from grpc_ps.protos.job_pb2 import Settings
from grpc_ps.psserver.checkpoint import BlockValues
from grpc_ps.psserver.lead.settings import DEFAULTS
from grpc_ps.psserver.regions import RegionValues, assembled, region_values
from grpc_ps.psserver.store import Store, tensor_of


def settings(**changes: Any) -> Settings:
    return Settings(**{**DEFAULTS, **changes})


def store_of(value: np.ndarray, trainable: bool = True, **changes: Any) -> Store:
    spec = ParameterSpec(name="w", shape=value.shape, dtype=value.dtype.name, trainable=trainable)
    (blocks,) = place([spec], 1).shards
    layout = values_layout(blocks)
    return Store(layout, first_values(layout, {"w": value}), settings(**changes))


def first_values(layout: Layout, arrays: Mapping[str, np.ndarray]) -> list[RegionValues]:
    def of(block: Block) -> BlockValues:
        return BlockValues(arrays[block.parameter][block.start : block.stop], {})

    return [region_values(region, [of(block) for block in region.blocks]) for region in layout.regions]


def update(store: Store, gradients: list[np.ndarray], rate: float) -> None:
    """Applies gradients from memory like that of a place: a multiple of 64 bytes each, the rest zero."""
    aligned = []
    for gradient in gradients:
        memory = aligned_buffer(-(-gradient.nbytes // 64) * 64).view(gradient.dtype)
        memory[: len(gradient)] = gradient
        aligned.append(memory)
    store.apply(store.operands(aligned), rate)


def values(store: Store, dtype: str = "float32") -> np.ndarray:
    return np.concatenate([np.frombuffer(held.value, dtype) for held in store.state()])


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
        assert set(np.frombuffer(before[0], np.float32)[:size]) == {1.0}
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
    changes = {"optimizer": optimizer, "weight_decay": weight_decay}
    whole = store_of(first, **changes)
    parts = [store_of(first[it], **changes) for it in pieces]
    for _ in range(5):
        update(whole, [gradient], 0.1)
        for part, it in zip(parts, pieces, strict=True):
            update(part, [gradient[it]], 0.1)
    assert len(pieces) > 10
    assert values(whole).tobytes() == b"".join(values(part).tobytes() for part in parts)


def test_decay_leaves_what_was_read_and_what_is_not_trainable() -> None:
    for trainable, expected in ((True, 0.5), (False, 1.0)):
        store = store_of(np.ones(10_000, np.float32), trainable, optimizer="sgd", weight_decay=1.0)
        before = store.read()
        update(store, [np.zeros(10_000, np.float32)], 0.5)
        assert set(np.frombuffer(before[0], np.float32)) == {1.0}
        assert set(values(store)) == {expected}


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_what_stands_between_blocks_changes_no_bit_and_stays_zero(optimizer: str) -> None:
    """Blocks of one kind are one tensor; an accumulator that begins with 0 would make 0 / 0 of the gaps."""
    rng = np.random.default_rng(3)
    first = {name: rng.normal(size=size).astype(np.float32) for name, size in (("a", 5), ("b", 1), ("c", 100))}
    gradients = {name: rng.normal(size=len(value)).astype(np.float32) for name, value in first.items()}
    specs = [ParameterSpec(name=name, shape=value.shape, dtype="float32") for name, value in first.items()]
    (blocks,) = place(specs, 1).shards
    layout = values_layout(blocks)
    (region,) = layout.regions
    changes = {"optimizer": optimizer, "initial_accumulator": 0.0}
    together = Store(layout, first_values(layout, first), settings(**changes))
    alone = {name: store_of(value, **changes) for name, value in first.items()}
    for _ in range(3):
        update(together, [assembled(region, list(gradients.values()), 0.0)], 0.1)
        for name, store in alone.items():
            update(store, [gradients[name]], 0.1)
    assert values(together).tobytes() == b"".join(values(store).tobytes() for store in alone.values())
    (image,) = (np.frombuffer(buffer, np.float32).copy() for buffer in together.read())
    for _, span in region.spans():
        image[span] = 0
    assert not image.any()
