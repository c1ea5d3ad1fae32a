"""Arrays of a job: tensors that do not fit are refused by name, and those that do keep their logical values."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from grpc_ps.client.parameters import Parameters, block_buffers
from grpc_ps.client.shared.blocks import ITEM_BYTES, ParameterSpec, place
from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.image import ALIGNMENT, gather, numpy_dtype, scatter

SHAPES: tuple[tuple[int, ...], ...] = ((), (0,), (1,), (4, 2), (2, 0, 3), (3, 1, 5))
SPECS = [
    ParameterSpec(name="w", shape=(2, 3), dtype="float32"),
    ParameterSpec(name="count", shape=(), dtype="int64", trainable=False),
]


def parameters(specs: list[ParameterSpec], shards: int = 1, names: list[str] | None = None) -> Parameters:
    return Parameters(specs, place(specs, shards), names)


def through_the_wire(one: Parameters, values: dict[str, Any]) -> None:
    """Sends values as images from one side to `one`."""
    flat = one.flatten(values, values=True)
    for images in one.shards:
        layout = images.values
        image = b"".join(gather(layout, 0, layout.total_bytes, block_buffers(layout, flat)))
        scatter(layout, 0, memoryview(image), images.destinations)


@pytest.mark.parametrize("shards", [1, 3])
def test_b17_types_and_shapes_are_equal_after_push_and_pull(shards: int) -> None:
    rng = np.random.default_rng(1)
    specs, values = [], {}
    for dtype in ITEM_BYTES:
        for shape in SHAPES:
            spec = ParameterSpec(name=f"{dtype} {shape}", shape=shape, dtype=dtype)
            specs.append(spec)
            values[spec.name] = np.asarray(rng.integers(0, 2, shape)).astype(numpy_dtype(dtype))
    received = parameters(specs, shards)
    through_the_wire(received, values)
    for name, value in values.items():
        array = received.arrays[name]
        assert (array.dtype, array.shape, array.tobytes()) == (value.dtype, value.shape, value.tobytes())
        assert array.size == 0 or array.ctypes.data % ALIGNMENT == 0


def test_b17_transposed_and_big_endian_inputs_give_their_logical_values() -> None:
    received = parameters(SPECS)
    value = np.arange(6, dtype=np.float32).reshape(3, 2).T
    through_the_wire(received, {"w": value, "count": np.array(5, ">i8")})
    assert np.array_equal(received.arrays["w"], [[0, 2, 4], [1, 3, 5]])
    assert received.arrays["count"] == 5
    through_the_wire(received, {"w": value.astype(">f4"), "count": np.int64(6)})
    assert np.array_equal(received.arrays["w"], value)
    through_the_wire(received, {"w": memoryview(value), "count": memoryview(np.array(7))})
    assert np.array_equal(received.arrays["w"], value)
    assert received.arrays["count"] == 7


def test_contiguous_tensors_are_not_copied() -> None:
    value = np.arange(6, dtype=np.float32).reshape(2, 3)
    for tensor in (value, memoryview(value), value.reshape(-1).view(np.uint8).data):
        flat = parameters(SPECS).flatten({"w": tensor}, values=False)
        assert list(flat) == ["w"]
        assert np.shares_memory(np.frombuffer(flat["w"], np.uint8), value)


def test_bfloat16_gradients_are_taken() -> None:
    value = np.array([1.5, -2], ml_dtypes.bfloat16)
    spec = ParameterSpec(name="w", shape=(2,), dtype="bfloat16")
    assert bytes(parameters([spec]).flatten({"w": value}, values=False)["w"]) == value.tobytes()


@pytest.mark.parametrize(
    ("tensors", "message"),
    [
        ({}, "missing: w"),
        ({"w": np.zeros((2, 3), "f4"), "b": 1}, "not a parameter of the push: b"),
        ({"v": np.zeros((2, 3), "f4")}, "missing: w; not a parameter of the push: v"),
        ({"w": np.zeros((3, 2), "f4")}, r"parameter w: expected float32 \(2, 3\), got float32 \(3, 2\)"),
        ({"w": np.zeros(6, "f4")}, r"got float32 \(6,\)"),
        ({"w": np.zeros((1, 3), "f4")}, r"got float32 \(1, 3\)"),
        ({"w": np.zeros((2, 3))}, r"got float64 \(2, 3\)"),
        ({"w": np.zeros((2, 3), "i4")}, r"got int32 \(2, 3\)"),
        ({"w": memoryview(np.zeros((3, 2), "f4"))}, r"got 24 bytes of shape \(3, 2\)"),
        ({"w": bytes(23)}, "got 23 bytes"),
    ],
)
def test_b18_what_does_not_fit_is_refused(tensors: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidPush, match=message):
        parameters(SPECS).flatten(tensors, values=False)


def test_unwanted_parameters_are_dropped() -> None:
    received = parameters(SPECS, names=["count"])
    through_the_wire(received, {"w": np.ones((2, 3), "f4"), "count": np.int64(3)})
    assert {name: array.item() for name, array in received.arrays.items()} == {"count": 3}
