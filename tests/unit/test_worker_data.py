"""From batch numbers to examples: each once an epoch, whoever takes them."""

from __future__ import annotations

import functools
import operator

import numpy as np
import pytest

from grpc_ps.models import Batch
from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.datasets.line import Line
from grpc_ps.worker.data import NumberedFeed, Order, source
from grpc_ps.worker.slots import as_fed
from grpc_ps.worker.tensors import aligned_array, share


def images(count: int) -> ArrayDataset:
    pixels = (np.arange(count)[:, None] + np.arange(4)[None, :]).astype(np.uint8)
    return ArrayDataset(pixels, np.arange(count, dtype=np.int32))


@pytest.mark.parametrize(("examples", "batch_size"), [(101, 10), (100, 10), (5, 7), (1, 1)])
def test_every_example_once_an_epoch(examples: int, batch_size: int) -> None:
    order = Order(examples=examples, batch_size=batch_size, seed=3)
    batches = -(-examples // batch_size)
    for epoch in (0, 1, 7):
        parts = [order.indices(epoch * batches + part).tolist() for part in range(batches)]
        assert sorted(functools.reduce(operator.iadd, parts, [])) == list(range(examples))
        assert {len(part) for part in parts[:-1]} <= {batch_size}
        assert len(parts[-1]) == (examples % batch_size or batch_size)


def test_the_order_depends_on_seed_and_epoch_alone() -> None:
    first, second = (Order(examples=50, batch_size=10, seed=seed) for seed in (1, 2))
    backwards = Order(examples=50, batch_size=10, seed=1)
    forwards = [first.indices(number).tolist() for number in range(20)]
    assert [backwards.indices(number).tolist() for number in reversed(range(20))] == forwards[::-1]
    assert second.indices(0).tolist() != forwards[0]
    assert forwards[5] != forwards[0]


def test_the_order_is_the_same_for_ever() -> None:
    """Workers with other versions of numpy must agree with this one."""
    assert Order(examples=10, batch_size=10, seed=0).indices(0).tolist() == [3, 2, 1, 8, 6, 0, 7, 4, 5, 9]
    assert Order(examples=10, batch_size=5, seed=2**63).indices(3).tolist() == [9, 8, 7, 2, 3]


def test_endless_batches_depend_on_seed_and_number_alone() -> None:
    one, two = (source(Line(), batch_size=8, seed=5) for _ in range(2))
    ahead = [one.batch(number)[0] for number in (0, 1, 2)]
    assert np.array_equal(two.batch(2)[0], ahead[2])
    assert not np.array_equal(ahead[0], ahead[1])
    assert not np.array_equal(source(Line(), batch_size=8, seed=6).batch(0)[0], ahead[0])
    assert ahead[0].shape == (8,)


def test_pixels_become_floats_from_zero_to_one() -> None:
    data = ArrayDataset(np.array([[0, 51, 255]], np.uint8), np.array([7], np.int32))
    fed = NumberedFeed(source(data, batch_size=1, seed=0)).take(0)
    assert fed.features.numpy().tolist() == [[0.0, pytest.approx(0.2), 1.0]]
    assert fed.labels.numpy().tolist() == [7]
    assert fed.features.dtype.name == "float32"
    assert np.array_equal(as_fed(data.take(np.array([0])))[0], fed.features.numpy())


def test_a_short_batch_has_its_own_length() -> None:
    feed = NumberedFeed(source(images(25), batch_size=10, seed=0))
    order = Order(examples=25, batch_size=10, seed=0)
    for number in (2, 0, 1, 2, 5, 3):  # The short one comes first: its memory is too small for the others.
        fed = feed.take(number)
        assert fed.labels.numpy().tolist() == order.indices(number).tolist()
        assert fed.examples == len(order.indices(number))
        np.testing.assert_allclose(fed.features.numpy()[:, 1] * 255, order.indices(number) + 1, rtol=1e-6)


@pytest.mark.parametrize("hint", [1, 3, None])
def test_a_batch_stays_valid_while_the_next_is_prepared(hint: int | None) -> None:
    order = Order(examples=40, batch_size=10, seed=0)
    feed = NumberedFeed(source(images(40), batch_size=10, seed=0))
    current = feed.take(0)
    for number in (1, 2, 3):
        feed.prepare(hint)
        feed.prepare(hint)
        assert current.labels.numpy().tolist() == order.indices(current.number).tolist()
        following = feed.take(number)
        assert current.labels.numpy().tolist() == order.indices(current.number).tolist()
        assert following.labels.numpy().tolist() == order.indices(number).tolist()
        current = following


def test_a_prepared_batch_is_not_loaded_again() -> None:
    loaded: list[int] = []

    class Counting:
        def batch(self, number: int) -> Batch:
            loaded.append(number)
            return np.zeros((2, 3), np.float32), np.zeros(2, np.int32)

    feed = NumberedFeed(Counting())
    feed.take(4)
    feed.prepare(5)
    assert feed.take(5).number == 5
    feed.prepare(6)
    assert feed.take(7).number == 7
    assert loaded == [4, 5, 6, 7]


def test_text_and_truth_values_are_fed_by_copy() -> None:
    data = ArrayDataset(np.array([[True], [False]]), np.array([0.5, 1.5], np.float16))
    fed = NumberedFeed(source(data, batch_size=2, seed=0)).take(0)
    assert sorted(fed.features.numpy()[:, 0].tolist()) == [False, True]
    assert sorted(fed.labels.numpy().tolist()) == [0.5, 1.5]


def test_shared_memory_is_shared() -> None:
    array = aligned_array((2, 3), np.dtype(np.float32))
    tensor = share(array)
    assert tensor is not None
    array[1, 2] = 7
    assert tensor.numpy()[1, 2] == 7


@pytest.mark.parametrize(
    "array",
    [
        aligned_array((33,), np.dtype(np.float32))[1:],
        aligned_array((4, 4), np.dtype(np.float32)).T[:, :2],
        aligned_array((0,), np.dtype(np.float32)),
        aligned_array((4,), np.dtype(np.bool_)),
    ],
)
def test_memory_that_tensorflow_would_not_take_is_refused(array: np.ndarray) -> None:
    assert share(array) is None


def test_read_only_memory_is_refused() -> None:
    array = aligned_array((4,), np.dtype(np.float32))
    array.flags.writeable = False
    assert share(array) is None
