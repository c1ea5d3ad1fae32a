"""Updates of rows are those of TensorFlow's own sparse kernels, and touch nothing else."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.rows import Rows, first_values
from grpc_ps.client.shared.tables import TableSpec
from grpc_ps.protos.job_pb2 import Settings
from grpc_ps.psserver.lead.settings import complete
from grpc_ps.psserver.sparse import Tables
from grpc_ps.psserver.table_memory import VALUES

ROWS, DIM, STEPS, RATE = 50, 6, 20, 0.05
ops = tf.raw_ops


def spec_of(**rules: Any) -> ParameterSpec:
    return ParameterSpec(name="t", shape=(ROWS, DIM), dtype="float32", table=TableSpec(**rules))


def gradients(seed: int = 2) -> list[Rows]:
    """Of each step some rows, the same ones again now and then, rows above 40 never."""
    draw = np.random.default_rng(seed)
    steps = [np.unique(draw.integers(0, 40, 12)) for _ in range(STEPS)]
    return [Rows(ids, draw.normal(size=(len(ids), DIM)).astype(np.float32)) for ids in steps]


def trained(steps: list[Rows], rule: Mapping[str, Any], **rules: Any) -> np.ndarray:
    tables = Tables([spec_of(**rules)], Settings(**complete(rule)), 0, 1)  # type: ignore[arg-type]
    for rows in steps:
        assert tables.apply([rows], RATE) == ""
    out = np.empty((ROWS, DIM), np.float32)
    tables.memory[0].read(np.arange(ROWS), out)
    return out


def constant(value: float) -> tf.Tensor:
    return tf.constant(value, tf.float32)


Slots = list[tf.Variable]
Kernel = Callable[[tf.Variable, Slots, tf.Tensor, tf.Tensor, int], None]


def sgd(w: tf.Variable, slots: Slots, ids: tf.Tensor, grad: tf.Tensor, step: int) -> None:
    ops.ResourceScatterAdd(resource=w.handle, indices=ids, updates=-RATE * grad)


def momentum(nesterov: bool) -> Kernel:
    def update(w: tf.Variable, slots: Slots, ids: tf.Tensor, grad: tf.Tensor, step: int) -> None:
        ops.ResourceSparseApplyMomentum(
            var=w.handle,
            accum=slots[0].handle,
            lr=constant(RATE),
            grad=grad,
            indices=ids,
            momentum=constant(0.9),
            use_nesterov=nesterov,
        )

    return update


def adagrad(w: tf.Variable, slots: Slots, ids: tf.Tensor, grad: tf.Tensor, step: int) -> None:
    ops.ResourceSparseApplyAdagrad(
        var=w.handle, accum=slots[0].handle, lr=constant(RATE), grad=grad, indices=ids, update_slots=True
    )


def rmsprop(w: tf.Variable, slots: Slots, ids: tf.Tensor, grad: tf.Tensor, step: int) -> None:
    ops.ResourceSparseApplyRMSProp(
        var=w.handle,
        ms=slots[0].handle,
        mom=slots[1].handle,
        lr=constant(RATE),
        rho=constant(0.9),
        momentum=constant(0.5),
        epsilon=constant(1e-7),
        grad=grad,
        indices=ids,
    )


def ftrl(w: tf.Variable, slots: Slots, ids: tf.Tensor, grad: tf.Tensor, step: int) -> None:
    ops.ResourceSparseApplyFtrl(
        var=w.handle,
        accum=slots[0].handle,
        linear=slots[1].handle,
        grad=grad,
        indices=ids,
        lr=constant(RATE),
        l1=constant(0.001),
        l2=constant(0.01),
        lr_power=constant(-0.5),
    )


def lazy_adam(w: tf.Variable, slots: Slots, ids: tf.Tensor, grad: tf.Tensor, step: int) -> None:
    """As the LazyAdam of TensorFlow's addons: moments of rows without a gradient do not decay."""
    m, v = (tf.gather(slot, ids) for slot in slots)
    # In the kernels' precision, which 1 - 0.999 loses half of.
    one, two = constant(0.9), constant(0.999)
    m, v = one * m + (1 - one) * grad, two * v + (1 - two) * tf.square(grad)
    rate = RATE * tf.sqrt(1 - tf.pow(constant(0.999), step + 1.0)) / (1 - tf.pow(constant(0.9), step + 1.0))
    for slot, new in zip(slots, (m, v), strict=True):
        slot.scatter_update(tf.IndexedSlices(new, ids))
    w.scatter_sub(tf.IndexedSlices(rate * m / (tf.sqrt(v) + 1e-7), ids))


KERNELS: dict[str, tuple[dict[str, Any], tuple[float, ...], Kernel]] = {
    "sgd": ({"optimizer": "sgd"}, (), sgd),
    "momentum": ({"optimizer": "momentum"}, (0.0,), momentum(nesterov=False)),
    "nesterov": ({"optimizer": "momentum", "nesterov": True}, (0.0,), momentum(nesterov=True)),
    "adagrad": ({"optimizer": "adagrad"}, (0.1,), adagrad),
    "rmsprop": ({"optimizer": "rmsprop", "momentum": 0.5}, (0.0, 0.0), rmsprop),
    "ftrl": ({"optimizer": "ftrl", "l1": 0.001, "l2": 0.01}, (0.1, 0.0), ftrl),
    "adam": ({"optimizer": "adam"}, (0.0, 0.0), lazy_adam),
    "adamw": ({"optimizer": "adamw"}, (0.0, 0.0), lazy_adam),
}


@pytest.mark.parametrize("name", KERNELS)
def test_updates_are_those_of_the_sparse_kernels(name: str) -> None:
    rule, firsts, kernel = KERNELS[name]
    w = tf.Variable(first_values(spec_of(), 0, np.arange(ROWS)))
    slots = [tf.Variable(tf.fill([ROWS, DIM], first)) for first in firsts]
    for step, rows in enumerate(gradients()):
        kernel(w, slots, tf.constant(rows.ids), tf.constant(rows.values), step)
    found = trained(gradients(), rule)
    np.testing.assert_allclose(found, w.numpy(), rtol=0, atol=1e-6)
    # What nobody has touched is as it was, to the bit.
    assert np.array_equal(found[40:], first_values(spec_of(), 0, np.arange(40, ROWS)))


@pytest.mark.parametrize("name", KERNELS)
def test_lazy_rows_are_updated_like_all_others(name: str) -> None:
    rule = KERNELS[name][0]
    assert np.array_equal(trained(gradients(), rule, lazy=True), trained(gradients(), rule))


def test_a_result_that_is_not_finite_names_its_table() -> None:
    tables = Tables([spec_of()], Settings(**complete({"optimizer": "sgd"})), 0, 1)  # type: ignore[arg-type]
    rows = Rows(np.array([3]), np.full((1, DIM), 3e38, np.float32))
    assert tables.apply([rows], 1.0) == ""
    assert tables.apply([rows], 1.0) == "t"


def test_an_update_without_rows_counts_as_one() -> None:
    none = Rows(np.empty(0, np.int64), np.empty((0, DIM), np.float32))
    steps = gradients()[:1]
    rule = {"optimizer": "adam"}
    assert not np.array_equal(trained([none, *steps], rule), trained(steps, rule))
    assert np.array_equal(trained([*steps, none], rule), trained(steps, rule))


@pytest.mark.parametrize("optimizer", ["adagrad", "adam"])
def test_the_bits_of_a_row_do_not_depend_on_the_rows_beside_it(optimizer: str) -> None:
    """Updates of many sizes, so that memory is made anew, reused and partly used, beside updates of one row each."""
    draw = np.random.default_rng(5)
    settings = Settings(**complete({"optimizer": optimizer}))  # type: ignore[arg-type]
    together, alone = (Tables([spec_of()], settings, 0, 1) for _ in range(2))
    for count in (3, 40, 33, 7, 50, 49, 1):
        ids = np.sort(draw.permutation(ROWS)[:count])
        rows = Rows(ids, draw.normal(size=(count, DIM)).astype(np.float32))
        updates = alone._updates
        assert together.apply([rows], RATE) == ""
        for place in range(count):
            alone._updates = updates
            alone.apply([Rows(ids[place : place + 1], rows.values[place : place + 1])], RATE)
    for name in together.memory[0].slots | {VALUES: 0.0}:
        first, second = (table.memory[0].view(slots=True).at(0, ROWS, name) for table in (together, alone))
        assert np.array_equal(first.view(np.uint32), second.view(np.uint32))
