"""A worker's share of a data set that has no random access."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import pytest

from grpc_ps.client.shared.errors import DataError
from grpc_ps.models import Batch, Dataset, EndlessDataset, StreamDataset
from grpc_ps.models.datasets import digits
from grpc_ps.models.datasets.line import Line
from grpc_ps.worker.data import NumberedFeed
from grpc_ps.worker.streams import StreamFeed


class Parts:
    """A share's batches as the test says, each of numbers; counts how often one was asked for."""

    examples = 0
    fingerprint = "parts"

    def __init__(self, *parts: Any) -> None:
        self.parts = parts
        self.asked: list[tuple[int, int, int]] = []
        self.given = 0

    def batches(self, batch_size: int, seed: int, share: int) -> Iterable[Batch]:
        self.asked.append((batch_size, seed, share))
        return self._batches()

    def _batches(self) -> Iterator[Batch]:
        for part in self.parts:
            self.given += 1
            if isinstance(part, Exception):
                raise part
            yield part if isinstance(part, tuple) else (np.array(part, np.float32), np.array(part, np.int32))


def feed(*parts: Any) -> StreamFeed:
    return StreamFeed(Parts(*parts), batch_size=3, seed=5, share=2)


def taken(one: StreamFeed, *numbers: int) -> list[list[int] | None]:
    return [None if (fed := one.take(number)) is None else fed.labels.numpy().tolist() for number in numbers]


def test_the_three_kinds_of_data_are_told_apart() -> None:
    kinds = [
        (isinstance(data, Dataset), isinstance(data, EndlessDataset), isinstance(data, StreamDataset))
        for data in (digits.load().train, Line(), Parts())
    ]
    assert kinds == [(True, False, False), (False, True, False), (False, False, True)]


def test_the_next_batch_of_the_share_whatever_the_number() -> None:
    data = Parts([1, 2, 3], [4], [5, 6, 7, 8])
    one = StreamFeed(data, batch_size=3, seed=5, share=2)
    assert taken(one, 40, 7, 9, 10, 11) == [[1, 2, 3], [4], [5, 6, 7, 8], None, None]
    assert data.asked == [(3, 5, 2)]


def test_batches_have_the_number_they_are_taken_for_and_their_own_length() -> None:
    one = feed([1, 2, 3], [4])
    one.prepare(8)
    first, second = one.take(9), one.take(4)
    assert first is not None
    assert second is not None
    assert [(fed.number, fed.examples) for fed in (first, second)] == [(9, 3), (4, 1)]
    assert first.features.numpy().tolist() == [1, 2, 3]


def test_one_batch_is_prepared_ahead_and_the_current_one_stays_valid() -> None:
    data = Parts([1, 2], [3, 4], [5, 6])
    one = StreamFeed(data, batch_size=2, seed=0, share=0)
    current = one.take(0)
    assert current is not None
    for _ in range(3):
        one.prepare(None)
    assert data.given == 2
    assert current.labels.numpy().tolist() == [1, 2]
    assert taken(one, 5) == [[3, 4]]
    assert current.labels.numpy().tolist() == [1, 2]


@pytest.mark.parametrize("parts", [(), ([],), ([], [])])
def test_a_share_without_batches_is_used_up_at_once(parts: tuple[list[int], ...]) -> None:
    one = feed(*parts)
    one.prepare(None)
    assert taken(one, 0, 1) == [None, None]


def test_empty_batches_are_passed_over() -> None:
    assert taken(feed([], [1], [], [2]), 0, 1, 2) == [[1], [2], None]


def test_a_generator_that_fails_is_named_when_its_batch_is_wanted() -> None:
    one = feed([1], ValueError("no\nmore disk"))
    assert taken(one, 0) == [[1]]
    one.prepare(1)  # A push is under way then: nothing is raised.
    error = r"ValueError: no more disk \(test_worker_streams.py, line \d+\)"
    says = rf"^the data 'parts' failed at batch 1 of share 2: {error}$"
    for _ in range(2):
        with pytest.raises(DataError, match=says):
            one.take(1)


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ((np.zeros((3, 2)), np.zeros(2)), r"a batch has features of shape \(3, 2\) and labels of shape \(2,\)"),
        ((np.zeros(3),), "not enough values"),
        ((np.float32(1), np.float32(1)), r"len\(\)|unsized"),
        (
            (np.zeros((2, 3), np.float32), np.zeros(2, np.int32)),
            r"a batch of features float32\[3\] and labels int32\[\] after others of features float32\[\] and",
        ),
    ],
)
def test_what_is_no_batch_is_named(part: Any, says: str) -> None:
    one = feed([1], part)
    one.take(0)
    with pytest.raises(DataError, match=rf"the data 'parts' failed at batch 1 of share 2: .*{says}"):
        one.take(1)


def test_numbered_data_that_fails_is_named_too() -> None:
    class Broken:
        def batch(self, number: int) -> Batch:
            raise OSError("disk gone")

    says = r"^the data failed at batch 6: OSError: disk gone \(test_worker_streams.py, line \d+\)$"
    with pytest.raises(DataError, match=says):
        NumberedFeed(Broken()).take(6)
