"""The data sets that need no files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from sklearn.datasets import load_digits

from grpc_ps.models.datasets import choose, digits, line, open_data, synthetic
from grpc_ps.models.spec import DataFileError, Dataset


def test_digits_are_scikit_learns_at_28_by_28() -> None:
    bundle = digits.load()
    reference = load_digits()
    assert isinstance(bundle.train, Dataset)
    assert bundle.test is not None
    assert (bundle.train.examples, bundle.test.examples) == (1498, 299)
    pixels, classes = bundle.train.take(np.arange(6))
    # Every sixth image is set aside, so training image 5 is image 6 of the source.
    assert classes.tolist() == reference.target[[0, 1, 2, 3, 4, 6]].tolist()
    assert bundle.test.take(np.array([0]))[1].tolist() == [reference.target[5]]
    drawn = pixels[5].reshape(28, 28)
    assert np.array_equal(drawn[3:26:3, 3:26:3], np.round(reference.images[6] * 255 / 16))
    assert drawn.dtype == np.uint8
    assert classes.dtype == np.int32


def test_digits_are_drawn_three_times_as_large_in_a_margin_of_two() -> None:
    image = np.zeros((1, 8, 8), np.int32)
    image[0, 0, 7] = 16
    drawn = digits.draw(image).reshape(28, 28)
    assert np.argwhere(drawn == 255).tolist() == [[r, c] for r in (2, 3, 4) for c in (23, 24, 25)]
    assert drawn.sum() == 9 * 255


def test_digits_say_what_is_missing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(digits, "_FILE", tmp_path / "none.csv.gz")
    with pytest.raises(DataFileError, match=r"none\.csv\.gz: missing"):
        digits.load()


def test_synthetic_images_are_the_same_everywhere() -> None:
    one, two = synthetic.load(), synthetic.load()
    assert isinstance(one.train, Dataset)
    assert one.test is None
    assert one.train.fingerprint == two.train.fingerprint == "3eeb05cb0fe3d17d"
    pixels, classes = one.train.take(np.arange(10000))
    assert pixels.shape == (10000, 784)
    assert abs(pixels.mean() - 127.5) < 0.5
    assert sorted(set(classes.tolist())) == list(range(10))


def test_the_line() -> None:
    x, y = line.Line().draw(np.random.default_rng(3), 1000)
    assert x.dtype == y.dtype == np.float32
    assert x.shape == (1000,)
    assert 0 <= x.min() < 0.01
    assert 0.99 < x.max() < 1
    assert np.abs(y - (0.1 * x + 0.3)).max() < 1e-6


@pytest.mark.parametrize(
    ("default", "name", "directory", "chosen"),
    [
        ("digits", None, None, "digits"),
        ("digits", "synthetic", None, "synthetic"),
        ("digits", None, Path("here"), "idx"),
        ("line", None, None, "line"),
        ("cifar10", None, None, "crops"),
        ("cifar10", "synthetic", None, "crops"),
        ("cifar10", None, Path("here"), "cifar10"),
        ("cifar10", "data_batch_1", Path("here"), "cifar10"),
        ("cifar10", "data_batch_5,data_batch_2", Path("here"), "cifar10"),
    ],
)
def test_choice_of_data(default: str, name: str | None, directory: Path | None, chosen: str) -> None:
    assert choose(default, name=name, directory=directory) == chosen


FILES = "synthetic, some of data_batch_1 to data_batch_5 or file.py:attribute"


@pytest.mark.parametrize(
    ("default", "name", "directory", "says"),
    [
        ("digits", "digits", Path("here"), "--data digits and --data-dir here exclude each other"),
        ("line", "digits", None, "--data digits: this model has its own data"),
        ("line", None, Path("here"), "--data-dir here: this model has its own data"),
        (
            "digits",
            "data_batch_1",
            Path("here"),
            "--data data_batch_1: this model takes digits, synthetic or file.py:attribute$",
        ),
        (
            "digits",
            "data_batch_1",
            None,
            "--data data_batch_1: this model takes digits, synthetic or file.py:attribute$",
        ),
        ("cifar10", "digits", None, f"--data digits: this model takes {FILES}$"),
        ("cifar10", "cifar", None, f"--data cifar: this model takes {FILES}$"),
        ("cifar10", "data_batch_9", Path("here"), rf"{FILES} \(did you mean data_batch_5\?\)$"),
        ("cifar10", "data_batch_1,data_batch2", Path("here"), rf"{FILES} \(did you mean data_batch_2\?\)$"),
        ("cifar10", "data_batch_1", None, "--data data_batch_1: names files, so it needs --data-dir"),
        ("cifar10", "data_batch_1,data_batch_1", None, f"data_batch_1: this model takes {FILES}"),
    ],
)
def test_impossible_choices(default: str, name: str | None, directory: Path | None, says: str) -> None:
    with pytest.raises(ValueError, match=says):
        choose(default, name=name, directory=directory)


def test_a_users_own_loader() -> None:
    bundle = line.load()
    assert open_data(lambda directory: bundle, directory=None) is bundle
    with pytest.raises(ValueError, match="--data digits: this model has its own data"):
        open_data(lambda directory: bundle, name="digits")
