"""A user's own data: arrays, data sets and tf.data, returned by functions of several forms."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.models import StreamDataset
from grpc_ps.models.datasets.line import Line
from grpc_ps.models.datasets.own import own_loader
from grpc_ps.models.datasets.tf_data import TfData, in_memory
from grpc_ps.worker.streams import StreamFeed, shared_out

X, Y = np.arange(12, dtype=np.float32).reshape(6, 2), np.arange(6, dtype=np.int64)


def pipeline(batched: int = 0) -> tf.data.Dataset:
    made = tf.data.Dataset.from_tensor_slices((X, Y))
    return made.batch(batched) if batched else made


def labels_of(data: StreamDataset, *, batch_size: int = 4, share: int = 0) -> list[list[int]]:
    return [labels.tolist() for _, labels in data.batches(batch_size, 0, share)]


def test_arrays_alone_or_to_train_and_to_test_with() -> None:
    alone = own_loader(lambda: (X, Y), "data")(None)
    assert (alone.train.examples, alone.test) == (6, None)
    pair = own_loader(((X, Y), (X[:2], Y[:2])), "DATA")(None)
    assert pair.test is not None
    assert (pair.train.examples, pair.test.examples, pair.train.fingerprint) == (6, 2, alone.train.fingerprint)


def test_data_sets_and_bundles_pass_as_they_are_and_a_class_is_called() -> None:
    bundle = own_loader(lambda: (X, Y), "data")(None)
    assert own_loader(lambda directory: bundle, "data")(None) is bundle
    assert isinstance(own_loader(Line, "Line")(None).train, Line)


def test_a_function_gets_the_folder_if_it_takes_one() -> None:
    seen: list[Any] = []

    def load(folder: Path | None) -> Any:
        seen.append(folder)
        return X, Y

    def load_by_itself(path: str = "mine.npz", **others: Any) -> Any:
        return load(Path(path))

    def load_anything(*places: Any, **others: Any) -> Any:
        return load(Path(*places))

    for function in (load, load_by_itself, load_anything):
        own_loader(function, "load")(Path("here"))
        own_loader(function, "load")(None)
    assert seen == [Path("here"), None, Path("here"), Path("mine.npz"), Path(), Path()]


@pytest.mark.parametrize("value", [None, 3, "text", (X, Y, Y), {"x": X}])
def test_what_is_no_data_is_refused_with_what_would_be(value: Any) -> None:
    with pytest.raises(TypeError, match="expected a DataBundle, a data set, arrays"):
        own_loader(lambda: value, "data")(None)


def test_a_pipeline_of_examples_is_batched_by_the_job_and_one_of_batches_is_not() -> None:
    assert labels_of(TfData(lambda _: pipeline(), name="p")) == [[0, 1, 2, 3], [4, 5]]
    assert labels_of(TfData(lambda _: pipeline(5), name="p")) == [[0, 1, 2, 3, 4], [5]]
    one_hot = tf.data.Dataset.from_tensor_slices((X, np.eye(6, dtype=np.float32)))
    assert [len(labels) for _, labels in TfData(lambda _: one_hot, name="p").batches(4, 0, 0)] == [4, 2]


def test_each_worker_has_its_share_of_a_pipeline() -> None:
    data = shared_out(TfData(lambda _: pipeline(), name="p"), {"workers": 2, "backup": 1})
    shares = [labels_of(data, share=share) for share in range(3)]
    assert shares == [[[0, 3]], [[1, 4]], [[2, 5]]]
    assert labels_of(data, share=7) == shares[1]
    assert labels_of(shared_out(TfData(lambda _: pipeline(), name="p"), {"workers": 1})) == [[0, 1, 2, 3], [4, 5]]


def test_shares_of_a_shuffled_pipeline_are_parts_of_one_order() -> None:
    def one(share: int, workers: int, seed: int = 3) -> list[int]:
        data = TfData(lambda _: tf.data.Dataset.range(24).map(lambda n: (n, n)).shuffle(24), name="p").among(workers)
        return [label for _, labels in data.batches(4, seed, share) for label in labels.tolist()]

    shares = [one(share, 2) for share in range(2)]
    assert sorted(shares[0] + shares[1]) == list(range(24))
    assert shares[0] == one(0, 2) != one(0, 2, seed=4)
    # Nobody knows of the others: each reads all, in an order of its own.
    alone = [one(share, 1) for share in range(2)]
    assert alone[0] != alone[1]
    assert sorted(alone[0]) == sorted(alone[1]) == list(range(24))


def test_a_function_that_takes_its_share_makes_the_pipeline_of_that_share() -> None:
    def make(share: int, shares: int, batch_size: int) -> tf.data.Dataset:
        return pipeline().skip(share).batch(batch_size).take(shares)

    train = own_loader(make, "make")(None).train
    assert isinstance(train, TfData)
    assert labels_of(train.among(5), batch_size=2, share=3) == [[3, 4], [5]]


def test_an_endless_pipeline_feeds_as_long_as_it_is_asked() -> None:
    feed = StreamFeed(TfData(lambda _: pipeline(4).repeat(), name="p"), batch_size=1, seed=0, share=0)
    taken = [feed.take(number) for number in range(5)]
    assert [fed.examples for fed in taken if fed is not None] == [4, 2, 4, 2, 4]


def test_a_pair_of_pipelines_trains_with_one_and_reads_the_other_whole() -> None:
    bundle = own_loader(lambda: (pipeline(4), pipeline().take(3)), "data")(None)
    assert isinstance(bundle.train, TfData)
    assert labels_of(bundle.train) == [[0, 1, 2, 3], [4, 5]]
    assert bundle.test is not None
    assert bundle.test.take(np.arange(3))[1].tolist() == [0, 1, 2]
    with pytest.raises(ValueError, match="must end, and this one repeats for ever"):
        in_memory(pipeline().repeat())


def test_the_form_of_an_example_is_known_without_reading_one() -> None:
    features, labels = TfData(lambda _: pipeline(4), name="p").example()
    assert (features.shape, features.dtype, labels.shape, labels.dtype) == ((1, 2), np.float32, (1,), np.int64)


@pytest.mark.parametrize(
    "elements", [X, (X, Y, Y), ({"a": X}, Y)], ids=["features alone", "sample weights", "named features"]
)
def test_elements_that_are_no_pair_of_tensors_are_refused(elements: Any) -> None:
    made = tf.data.Dataset.from_tensor_slices(elements)
    with pytest.raises(TypeError, match=r"elements of the tf\.data\.Dataset must be \(features, labels\), two tensors"):
        TfData(lambda _: made, name="p")


def test_processes_agree_by_the_function_and_the_form_of_its_elements() -> None:
    one, other = (TfData(lambda _: pipeline(), name=name) for name in ("p", "q"))
    assert one.fingerprint == TfData(lambda _: pipeline(), name="p").fingerprint != other.fingerprint
    assert one.among(3).fingerprint == one.fingerprint
