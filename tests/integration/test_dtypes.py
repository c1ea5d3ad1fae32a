"""Fault B17: every type and shape, in any order in memory, through opening, pushing and pulling."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import FLOATING, ITEM_BYTES, ParameterSpec
from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.image import numpy_dtype

SHAPES = ((), (0,), (1,), (4, 2), (2, 0, 3), (3, 1, 5), (20, 30))
LR = 0.5


def as_it_is(array: np.ndarray) -> np.ndarray:
    return array


def transposed(array: np.ndarray) -> np.ndarray:
    """The same values; in memory, the transpose."""
    return np.array(array, order="F")


def big_endian(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder(">"))


def strided(array: np.ndarray) -> np.ndarray:
    """The same values; in memory, every other element."""
    wide = np.zeros((*array.shape[:-1], 2 * array.shape[-1]) if array.ndim else (), array.dtype)
    if not array.ndim:
        return array
    wide[..., ::2] = array
    return wide[..., ::2]


FORMS: list[Callable[[np.ndarray], np.ndarray]] = [as_it_is, transposed, big_endian, strided]


def arrays(specs: list[ParameterSpec], seed: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(seed)
    # Small whole numbers: sums and halves of them are exact in every type.
    return {spec.name: np.asarray(rng.integers(0, 2, spec.shape) * 2).astype(numpy_dtype(spec.dtype)) for spec in specs}


def check(received: dict[str, np.ndarray], expected: dict[str, np.ndarray]) -> None:
    for name, value in expected.items():
        array = received[name]
        assert (array.dtype, array.shape, array.tobytes()) == (value.dtype, value.shape, value.tobytes()), name


# NumPy has no big-endian bfloat16.
@pytest.mark.parametrize(
    ("dtype", "form"),
    [(dtype, form) for dtype in ITEM_BYTES for form in FORMS if (dtype, form) != ("bfloat16", big_endian)],
)
def test_b17_values_and_gradients_keep_type_shape_and_bytes(
    dtype: str, form: Callable[[np.ndarray], np.ndarray]
) -> None:
    """Fault B17. What is not trainable is pushed as deltas; what is not floating is not pushed."""
    floating = dtype in FLOATING
    specs = [ParameterSpec(name=f"w{shape}", shape=shape, dtype=dtype, trainable=floating) for shape in SHAPES]
    specs += [ParameterSpec(name=f"s{shape}", shape=shape, dtype=dtype, trainable=False) for shape in SHAPES]
    first, pushed = arrays(specs, 0), arrays(specs, 1)
    presets = {"learning_rate": LR}
    with LocalCluster(2, presets=presets, chunk_bytes=1024) as cluster, PSClient(cluster.addresses) as client:
        session = client.join("test", specs)
        session.open({name: form(array) for name, array in first.items()})
        session.begin()
        check(session.parameters, first)
        reply = client.push({name: form(array) for name, array in pushed.items()} if floating else {})
        assert (reply.outcome, reply.global_step) == ("APPLIED", 1)
        expected = first
        if floating:
            rates = {name: array.dtype.type(1.0 if name[0] == "s" else -LR) for name, array in first.items()}
            expected = {name: np.asarray(first[name] + rates[name] * pushed[name]) for name in first}
        check(session.parameters, expected)
        pulled = client.pull()
        assert pulled.global_step == 1
        check(pulled.values, expected)


BAD: dict[str, tuple[dict[str, np.ndarray], str]] = {
    "unknown-name": ({"w": np.zeros((2, 3), "f4"), "v": np.zeros(3, "f4")}, "not a parameter of the push: v"),
    "another-shape": ({"w": np.zeros((3, 2), "f4")}, r"parameter w: expected float32 \(2, 3\), got float32 \(3, 2\)"),
    "another-type": ({"w": np.zeros((2, 3), "f8")}, r"parameter w: expected float32 \(2, 3\), got float64 \(2, 3\)"),
    "broadcast": ({"w": np.zeros((1, 3), "f4")}, r"parameter w: expected float32 \(2, 3\), got float32 \(1, 3\)"),
    "flat": ({"w": np.zeros(6, "f4")}, r"parameter w: expected float32 \(2, 3\), got float32 \(6,\)"),
    "missing": ({}, "missing: w"),
}


@pytest.mark.parametrize(("gradients", "says"), BAD.values(), ids=BAD)
def test_b18_what_does_not_fit_is_refused_whole_before_anything_is_sent(
    gradients: dict[str, np.ndarray], says: str
) -> None:
    """Fault B18: names the parameter, what was expected and what came; nothing is converted or broadcast."""
    spec = ParameterSpec(name="w", shape=(2, 3), dtype="float32")
    with LocalCluster(2, presets={"learning_rate": LR}) as cluster, PSClient(cluster.addresses) as client:
        session = client.join("test", [spec])
        session.open({"w": np.ones((2, 3), "f4")})
        session.begin()
        with pytest.raises(InvalidPush, match=f"^{says}"):
            client.push(gradients)
        pulled = client.pull()
        assert (pulled.global_step, pulled.values["w"].tolist()) == (0, [[1.0] * 3] * 2)
        reply = client.push({"w": np.ones((2, 3), "f4")})
        assert (reply.outcome, session.parameters["w"].tolist()) == ("APPLIED", [[0.5] * 3] * 2)
