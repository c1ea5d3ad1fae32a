"""Limits on gradients, element by element."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from updated_shards import plan_of

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.psserver.clipping import clip_by_value, scale

FLOATING = [np.float16, ml_dtypes.bfloat16, np.float32, np.float64]


@pytest.mark.parametrize("dtype", FLOATING)
def test_elements_beyond_the_limit_are_at_it_and_others_stay(dtype: type) -> None:
    block = np.array([-5.0, -0.5, 0.0, 0.25, 5.0], dtype)
    clip_by_value(block, 0.5)
    assert block.astype(float).tolist() == [-0.5, -0.5, 0.0, 0.25, 0.5]
    assert block.dtype == dtype


def test_a_limit_beyond_the_type_limits_nothing() -> None:
    block = np.array([-65504.0, 3.0], np.float16)
    clip_by_value(block, 1e30)
    assert block.tolist() == [-65504.0, 3.0]


@pytest.mark.parametrize("dtype", FLOATING)
def test_scaling_multiplies_and_rounds_once(dtype: type) -> None:
    block = np.array([3.0, -1.0, 100.0], dtype)
    factor = float(np.float32(0.3))
    expected = (block.astype(np.float64) * factor).astype(np.float32 if dtype != np.float64 else dtype).astype(dtype)
    scale(block, factor)
    assert block.tobytes() == expected.tobytes()


def test_a_factor_of_one_multiplies_nothing() -> None:
    block = np.array([np.float32(0.1)])
    block.flags.writeable = False
    scale(block, 1.0)


def test_infinity_times_zero_is_not_a_number_and_no_warning() -> None:
    block = np.array([np.inf, 1.0], np.float32)
    scale(block, 0.0)
    assert np.isnan(block[0])


def test_scales_go_to_parameters_in_order_of_their_names() -> None:
    """`Apply.scales`: none, one for all, or one a parameter of the job, whatever lies on this shard."""
    specs = [
        ParameterSpec(name="b", shape=(100,), dtype="float32"),
        ParameterSpec(name="a", shape=(3,), dtype="int32", trainable=False),
        ParameterSpec(name="d", shape=(10,), dtype="float32"),
        ParameterSpec(name="c", shape=(50,), dtype="float32", trainable=False),
    ]
    for shard in range(2):
        plan = plan_of(specs, shard, 2)
        names = [block.parameter for block in plan.gradients.blocks]
        factors = {"b": 0.5, "c": 1.0, "d": 0.25}
        assert plan.factors((9.0, 0.5, 7.0, 0.25)) == [factors[name] for name in names]
        assert plan.factors((0.5,)) == [1.0 if name == "c" else 0.5 for name in names]
        assert plan.factors(()) == [1.0] * len(names)
