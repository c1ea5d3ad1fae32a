"""Crops and what is done to them: TensorFlow's own operations make the same of the same random numbers."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.models.datasets.crops import Crops, scale_contrast, standardize
from grpc_ps.worker.data import Order, source

COUNT = 40


def images() -> np.ndarray:
    return np.random.default_rng(1).integers(0, 256, (COUNT, 3, 32, 32), np.uint8)


def crops(pixels: np.ndarray | None = None) -> Crops:
    return Crops(images() if pixels is None else pixels, np.arange(COUNT, dtype=np.int32), "contents")


def tutorials(image: np.ndarray, numbers: np.ndarray) -> np.ndarray:
    """The tutorial's `distorted_inputs` of one image, with the random numbers given."""
    top, left, mirrored, bright, contrast = numbers
    found = tf.cast(tf.transpose(image, [1, 2, 0]), tf.float32)
    found = tf.image.crop_to_bounding_box(found, int(top * 9), int(left * 9), 24, 24)
    found = tf.image.flip_left_right(found) if mirrored < 0.5 else found
    found = tf.image.adjust_brightness(found, -63 + 126 * bright)
    found = tf.image.adjust_contrast(found, 0.2 + 1.6 * contrast)
    done: np.ndarray = tf.image.per_image_standardization(found).numpy()
    return done


def test_distortions_are_the_tutorials() -> None:
    indices = np.array([3, 0, 39, 3, 17, 8, 9, 30])
    found, labels = crops().augment(indices, np.random.Generator(np.random.PCG64(5)))
    numbers = np.random.Generator(np.random.PCG64(5)).random((5, len(indices)))
    assert labels.tolist() == indices.tolist()
    for image, index, drawn in zip(found, indices, numbers.T, strict=True):
        np.testing.assert_allclose(image, tutorials(images()[index], drawn), rtol=1e-4, atol=1e-4)


def test_the_whole_range_of_places_and_mirrors_is_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    drawn: list[tuple[np.ndarray, np.ndarray]] = []
    cut = Crops._crops

    def noted(self: Crops, indices: np.ndarray, corners: np.ndarray, mirrored: np.ndarray) -> np.ndarray:
        drawn.append((corners, mirrored))
        return cut(self, indices, corners, mirrored)

    monkeypatch.setattr(Crops, "_crops", noted)
    one, generator = crops(), np.random.Generator(np.random.PCG64(2))
    for _ in range(10):
        one.augment(np.arange(COUNT), generator)
    corners, mirrored = (np.concatenate(parts) for parts in zip(*drawn, strict=True))
    assert [set(axis.tolist()) for axis in corners.T] == [set(range(9))] * 2
    assert set(mirrored.tolist()) == {False, True}


def test_evaluation_sees_the_middle() -> None:
    found, _ = crops().take(np.array([5]))
    image = tf.cast(tf.transpose(images()[5], [1, 2, 0]), tf.float32)
    middle = tf.image.per_image_standardization(tf.image.resize_with_crop_or_pad(image, 24, 24))
    np.testing.assert_allclose(found[0], middle, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [0, 255])
def test_an_image_of_one_colour_becomes_zeros(value: int) -> None:
    found, _ = crops(np.full((COUNT, 3, 32, 32), value, np.uint8)).augment(
        np.arange(COUNT), np.random.Generator(np.random.PCG64(1))
    )
    assert np.abs(found).max() < 0.01


def test_contrast_and_standardization_by_hand() -> None:
    planes = np.array([[[0, 2], [4, 8], [10, 10]]], np.float32)
    scale_contrast(planes, np.full((1, 1, 1), 0.5, np.float32))
    assert planes.tolist() == [[[0.5, 1.5], [5, 7], [10, 10]]]
    standardize(planes)
    assert planes.mean() == pytest.approx(0, abs=1e-6)
    assert planes.std() == pytest.approx(1, rel=1e-6)


def test_a_batch_depends_on_seed_and_number_alone() -> None:
    one, two = (source(crops(), batch_size=8, seed=5) for _ in range(2))
    ahead = [one.batch(number) for number in range(5)]
    assert np.array_equal(two.batch(3)[0], ahead[3][0])
    assert not np.array_equal(source(crops(), batch_size=8, seed=6).batch(3)[0], ahead[3][0])
    indices = Order(examples=COUNT, batch_size=8, seed=5).indices(3)
    own, _ = crops().augment(indices, np.random.Generator(np.random.PCG64([5, 3, 1])))
    assert np.array_equal(ahead[3][0], own), "the generator is of seed and number, and of nothing else's numbers"
    # The next epoch has the same examples, distorted otherwise.
    later = [one.batch(number) for number in range(5, 10)]
    assert sorted(np.concatenate([labels for _, labels in later])) == list(range(COUNT))
    again = {int(label): image for images, labels in later for image, label in zip(images, labels, strict=True)}
    first = {int(label): image for images, labels in ahead for image, label in zip(images, labels, strict=True)}
    assert not any(np.array_equal(first[label], again[label]) for label in range(COUNT))


def test_what_is_drawn_is_made_of_raw_words_alone() -> None:
    """Workers with other versions of numpy must agree with this one, and numpy may change what it makes of words."""

    class Words:
        bit_generator = np.random.PCG64([5, 3, 1])

    expected, _ = crops().augment(np.arange(8), np.random.Generator(np.random.PCG64([5, 3, 1])))
    found, _ = crops().augment(np.arange(8), Words())  # type: ignore[arg-type]
    assert np.array_equal(found, expected)
    assert np.random.PCG64([5, 3, 1]).random_raw(2).tolist() == [16794356579887899311, 15471094660159557247]
