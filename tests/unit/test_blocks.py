"""The cut of parameters into blocks and the placement of blocks: complete, balanced, the same everywhere."""

from __future__ import annotations

import os
import random
import subprocess
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from grpc_ps.client.shared.blocks import Block, ParameterSpec, cut, place


def spec(name: str, *shape: int, dtype: str = "float32", trainable: bool = True) -> ParameterSpec:
    return ParameterSpec(name=name, shape=shape, dtype=dtype, trainable=trainable)


MLP = (spec("layer_1/w", 784, 512), spec("layer_1/b", 512), spec("layer_2/w", 512, 10), spec("layer_2/b", 10))

specs = st.builds(
    ParameterSpec,
    name=st.text(min_size=1, max_size=8),
    shape=st.lists(st.integers(0, 700), max_size=2).map(tuple),
    dtype=st.sampled_from(["float32", "float64", "bfloat16", "int64", "bool"]),
    trainable=st.booleans(),
)


@pytest.mark.parametrize(
    ("count", "pieces"),
    [
        (0, []),
        (1, [1]),
        (131072, [131072]),
        (131073, [16384] * 8 + [1]),
        (401408, [25600] * 15 + [17408]),
        (16 * 262144, [262144] * 16),
        (16 * 262144 + 1, [262144] * 16 + [1]),
    ],
)
def test_cut_follows_the_rule_of_the_contract(count: int, pieces: list[int]) -> None:
    blocks = cut(spec("w", count))
    assert [block.size for block in blocks] == pieces
    assert [block.start for block in blocks] == [sum(pieces[:i]) for i in range(len(pieces))]


def test_a_scalar_is_one_block_of_one_element() -> None:
    assert cut(spec("b", dtype="bfloat16", trainable=False)) == (Block("b", 0, 1, "bfloat16", False),)


@pytest.mark.parametrize("shards", [2, 4])
def test_b16_mlp_is_balanced(shards: int) -> None:
    loads = [sum(block.nbytes for block in shard) for shard in place(MLP, shards).shards]
    assert sum(loads) == 4 * (784 * 512 + 512 + 512 * 10 + 10)
    assert max(loads) <= 1.02 * sum(loads) / shards


def test_b16_plan_does_not_depend_on_the_order_of_declaration() -> None:
    expected = place(MLP, 4)
    for seed in range(5):
        shuffled = list(MLP)
        random.Random(seed).shuffle(shuffled)
        assert place(shuffled, 4) == expected


def test_b16_plan_is_the_same_in_every_process() -> None:
    text = (
        "from grpc_ps.client.shared.blocks import ParameterSpec as P, place\n"
        "names = {'layer_1/w': (784, 512), 'layer_1/b': (512,), 'layer_2/w': (512, 10), 'layer_2/b': (10,)}\n"
        "plan = place([P(name=n, shape=names[n], dtype='float32') for n in set(names)], 4)\n"
        "print(plan.fingerprint)\n"
        "print(plan.shards)\n"
    )
    expected = place(MLP, 4)
    for seed in ("0", "1", "4711"):
        run = subprocess.run(
            [sys.executable, "-c", text],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        assert run.stdout.split("\n", 1) == [expected.fingerprint, f"{expected.shards}\n"]


def test_b16_concatenated_blocks_restore_every_parameter() -> None:
    rng = np.random.default_rng(7)
    values = {p.name: rng.integers(0, 256, p.nbytes, dtype=np.uint8).view(np.float32) for p in MLP}
    restored: dict[str, dict[int, bytes]] = {}
    for shard in place(MLP, 4).shards:
        for block in shard:
            restored.setdefault(block.parameter, {})[block.start] = values[block.parameter][
                block.start : block.stop
            ].tobytes()
    for name, value in values.items():
        assert b"".join(piece for _, piece in sorted(restored[name].items())) == value.tobytes()


def test_b13_more_shards_than_blocks_leaves_shards_empty() -> None:
    plan = place([spec("w"), spec("b")], 5)
    assert [[block.parameter for block in shard] for shard in plan.shards] == [["b"], ["w"], [], [], []]


@given(st.lists(specs, max_size=6, unique_by=lambda p: p.name), st.integers(1, 5))
def test_every_element_lies_on_exactly_one_shard(parameters: list[ParameterSpec], count: int) -> None:
    plan = place(parameters, count)
    assert len(plan.shards) == count
    placed = sorted((b for shard in plan.shards for b in shard), key=lambda b: (b.parameter, b.start))
    assert placed == [b for p in sorted(parameters, key=lambda p: p.name) for b in cut(p)]
    for shard in plan.shards:
        assert list(shard) == sorted(shard, key=lambda b: (b.parameter, b.start))
    loads = [sum(b.nbytes for b in shard) for shard in plan.shards]
    assert max(loads) <= sum(loads) / count + max((b.nbytes for b in placed), default=0)


@pytest.mark.parametrize(
    "changed",
    [
        (spec("w", 3), spec("c")),
        (spec("w", 1, 3), spec("b")),
        (spec("w", 3, dtype="int32"), spec("b")),
        (spec("w", 3, trainable=False), spec("b")),
        (spec("w", 3), spec("b"), spec("empty", 0)),
    ],
)
def test_fingerprint_tells_models_apart(changed: tuple[ParameterSpec, ...]) -> None:
    plan = place([spec("w", 3), spec("b")], 2)
    assert plan.fingerprint != place(changed, 2).fingerprint
    assert plan.fingerprint != place([spec("w", 3), spec("b")], 3).fingerprint


def test_wrong_parameters_are_refused() -> None:
    with pytest.raises(ValueError, match="w is declared twice"):
        place([spec("w", 2), spec("b"), spec("w", 3)], 2)
    with pytest.raises(ValueError, match="at least one shard, not 0"):
        place([], 0)
    with pytest.raises(ValueError, match="w: type complex64 is not one of"):
        spec("w", dtype="complex64")
    with pytest.raises(ValueError, match="negative extent"):
        spec("w", -1)
    with pytest.raises(ValueError, match="1 to 256 characters, not 257"):
        spec("w" * 257)
