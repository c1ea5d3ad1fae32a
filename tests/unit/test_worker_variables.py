"""Variables follow the session's arrays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.models.mnist import Mnist
from grpc_ps.worker import variables as module
from grpc_ps.worker.tensors import aligned_array
from grpc_ps.worker.variables import Variables, bind, parameter_specs, read_values


def arrays_of(variables: list[tf.Variable]) -> dict[str, np.ndarray]:
    """What a session has: aligned arrays, with the values of the variables plus one."""
    made = {}
    for variable in variables:
        value = variable.numpy()
        array = aligned_array(value.shape, value.dtype)
        array[...] = value + 1
        made[variable.name.removesuffix(":0")] = array
    return made


def test_specs_say_what_the_model_has() -> None:
    w = tf.Variable(tf.zeros([2, 3], tf.bfloat16), name="w")
    count = tf.Variable(tf.zeros([], tf.int64), name="count", trainable=False)
    found = [(spec.name, spec.shape, spec.dtype, spec.trainable) for spec in parameter_specs([w, count])]
    assert found == [("w", (2, 3), "bfloat16", True), ("count", (), "int64", False)]


@pytest.mark.parametrize(
    ("made", "says"),
    [
        ([("a", tf.float32, True), ("a", tf.float32, True)], "several variables are named 'a'"),
        ([], "it has no variables"),
        ([("a", tf.int32, True)], "trainable variable 'a' has type int32"),
        ([("a", tf.complex64, False)], "variable 'a' has type complex64"),
    ],
)
def test_what_cannot_be_shared_is_refused(made: list[tuple[str, tf.DType, bool]], says: str) -> None:
    variables = [tf.Variable(tf.zeros([2], dtype), name=name, trainable=trainable) for name, dtype, trainable in made]
    with pytest.raises(UsageError, match=f"the model cannot be shared: {says}"):
        parameter_specs(variables)


def test_trainable_variables_are_bound_once() -> None:
    model = Mnist(hidden=3)
    model.initialize(0)
    arrays = arrays_of(list(model.variables))
    bound = Variables(model.variables, arrays)
    for value in (0.5, -2.0):
        for array in arrays.values():
            array[...] = value
        # Without a `refresh`: the memory is the same.
        for found in read_values(model.variables).values():
            assert (found == value).all()
    assert bound.deltas() == {}


def test_a_bound_variable_is_read_by_functions_as_written() -> None:
    w = tf.Variable([1.0, 2.0], name="w")
    array = arrays_of([w])["w"]
    assert bind(w, array)
    assert w.numpy().tolist() == array.tolist() == [2.0, 3.0]
    double = tf.function(lambda: 2 * w)
    for value in (1.0, 4.0, 9.0):
        array[:] = value
        assert double().numpy().tolist() == [2 * value] * 2


@pytest.mark.parametrize("dtype", ["bfloat16", "bool", "float16", "float64", "int32", "int64"])
@pytest.mark.parametrize("trainable", [True, False])
def test_every_type_follows_its_array(dtype: str, trainable: bool) -> None:
    trainable = trainable and "float" in dtype
    v = tf.Variable(tf.zeros([3], tf.as_dtype(dtype)), name="v", trainable=trainable)
    array = aligned_array((3,), np.dtype(ml_dtypes.bfloat16 if dtype == "bfloat16" else dtype))
    follower = Variables([v], {"v": array})
    array[:] = np.array([1, 0, 1]).astype(array.dtype)
    follower.refresh()
    assert v.numpy().tolist() == array.tolist()


def test_memory_that_cannot_be_bound_is_copied() -> None:
    v, empty = tf.Variable([1.0, 2.0], name="v"), tf.Variable(tf.zeros([0, 3]), name="empty")
    array = aligned_array((3,), np.dtype(np.float32))[1:]
    follower = Variables([v, empty], {"v": array, "empty": aligned_array((0, 3), np.dtype(np.float32))})
    array[:] = 7
    assert 7 not in v.numpy()
    follower.refresh()
    assert v.numpy().tolist() == [7, 7]


def test_a_tensorflow_that_copies_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    v = tf.Variable([1.0, 2.0], name="v")
    array = aligned_array((2,), np.dtype(np.float32))
    monkeypatch.setattr(module, "share", lambda array: tf.constant(array))
    follower = Variables([v], {"v": array})
    array[:] = 7
    assert 7 not in v.numpy()
    follower.refresh()
    assert v.numpy().tolist() == [7, 7]


def test_b94_state_that_a_step_changes_is_sent_as_its_change() -> None:
    mean = tf.Variable([1.0, 2.0], name="mean", trainable=False)
    still = tf.Variable([5.0], name="still", trainable=False)
    count = tf.Variable(3, name="count", trainable=False)
    arrays = arrays_of([mean, still, count])
    follower = Variables([mean, still, count], arrays)
    for _ in range(2):  # The second step starts from the release again, not from what the first one left.
        follower.refresh()
        mean.assign_add([0.5, -1.0])
        count.assign_add(1)
        deltas = follower.deltas()
        assert {name: delta.tolist() for name, delta in deltas.items()} == {"mean": [0.5, -1.0], "still": [0.0]}
        assert arrays["mean"].tolist() == [2.0, 3.0]
    follower.refresh()
    assert int(count.numpy()) == 4
