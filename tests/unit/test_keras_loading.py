"""How --model and --data find a Keras model and what it is trained on."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from grpc_ps.client.shared.errors import DataError, UsageError
from grpc_ps.models.keras_model import KerasModel
from grpc_ps.models.linear import Linear
from grpc_ps.worker.check import check
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.describe import Parameters
from grpc_ps.worker.loading import check_data_place, fit, load_data, model_factory
from grpc_ps.worker.variables import read_values

CODE = """
import keras
import numpy as np

def build(units=3):
    return keras.Sequential([keras.layers.Dense(units), keras.layers.Dense(2)])

model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(2)])

def data():
    return np.ones((10, 5), np.float32), np.arange(10) % 2

def wide(directory):
    return np.ones((4, 7), np.float32), np.zeros(4, np.int64)

def broken():
    return 1 / 0

def leaving():
    raise SystemExit(5)
"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder with a user's file, which is the current one."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "mine_of_user.py").write_text(CODE)
    yield tmp_path
    for name in ("mine_of_user", "grpc_ps_user_model", "grpc_ps_user_data"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("name", ["mine.py:build", "mine.py:model", "mine_of_user:model"])
def test_a_function_or_the_model_itself_gives_as_many_models_as_are_asked_for(name: str) -> None:
    factory = model_factory(name, {})
    one, two = factory(), factory()
    for model in (one, two):
        fit(model, load_data(model, name=None, directory=None), name=name)
    assert isinstance(one, KerasModel)
    assert list(read_values(one.variables)) == list(read_values(two.variables))
    assert one.variables[0] is not two.variables[0]
    one.initialize(4)
    two.initialize(4)
    drawn, again = read_values(one.variables), read_values(two.variables)
    assert all(np.array_equal(drawn[key], again[key]) for key in drawn)
    two.initialize(5)
    assert any(not np.array_equal(drawn[key], value) for key, value in read_values(two.variables).items())


def test_arguments_reach_the_function_and_the_file_has_the_data() -> None:
    model = model_factory("mine.py:build", {"units": 7})()
    bundle = load_data(model, name=None, directory=None)
    assert bundle.train.examples == 10
    fit(model, bundle, name="mine.py:build")
    assert [value.shape for value in read_values(model.variables).values()] == [(5, 7), (7,), (7, 2), (2,)]


@pytest.mark.parametrize("name", ["mine.py:model", "mine_of_user:model"])
def test_a_model_that_is_there_takes_no_arguments(name: str) -> None:
    with pytest.raises(
        UsageError, match=rf"^--model-arg units=7: {name} is a model, which takes none; name a function"
    ):
        model_factory(name, {"units": 7})


def test_data_of_another_place_is_for_any_model() -> None:
    assert load_data(Linear(), name="mine.py:data", directory=None).train.examples == 10
    for name, error in (("broken", r"ZeroDivisionError: division by zero"), ("leaving", "SystemExit: 5")):
        with pytest.raises(
            DataError, match=rf"^--data mine\.py:{name}: cannot be loaded: {error} \(mine\.py, line \d+\)$"
        ):
            load_data(Linear(), name=f"mine.py:{name}", directory=None)
    with pytest.raises(UsageError, match=r"^--data mine\.py:dota: no dota \(did you mean data\?\)"):
        load_data(Linear(), name="mine.py:dota", directory=None)
    with pytest.raises(UsageError, match=r"^--data none\.py:data: there is no file none\.py"):
        check_data_place("none.py:data")


def test_data_that_does_not_fit_is_refused_with_the_models_name() -> None:
    model = model_factory("mine.py:model", {})()
    wide = load_data(model, name="mine.py:wide", directory=None)
    says = r"^--model mine\.py:model: does not take examples of float32\[7\]: .*; other data: --data FILE\.py:FUNCTION$"
    with pytest.raises(UsageError, match=says):
        fit(model, wide, name="mine.py:model")


BARE = """
import keras
def build(pixels=784, classes=10, optimizer="sgd"):
    model = keras.Sequential([keras.Input((pixels,)), keras.layers.Dense(classes)])
    model.compile(optimizer=optimizer, loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True))
    return model
"""


def bare(here: Path, *, data: str | None = None, **arguments: int | str) -> WorkerConfig:
    (here / "bare.py").write_text(BARE)
    return WorkerConfig(addresses=(), model="bare.py:build", arguments=arguments, stated={}, data=data)


def test_a_model_without_data_trains_on_the_digits_and_says_so(
    here: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("grpc_ps.worker.check.setup_logging", lambda name: None)
    check(bare(here))
    (line,) = caplog.messages
    what = 'trains_on="embedded handwritten digits, 1498 images to train on and 299 to test with"'
    assert line.startswith(f"no_data_named model=sequential {what} do=")
    caplog.clear()
    check(bare(here, data="digits"))
    assert caplog.messages == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [({"classes": 3}, "Received a label value of 9"), ({"pixels": 100}, "to have value 100")],
)
def test_a_model_that_the_digits_do_not_fit_is_refused_without_data(
    here: Path, arguments: dict[str, int], says: str
) -> None:
    with pytest.raises(
        UsageError, match=rf"^--model bare\.py:build: .*{says}.*; no data is named, so these are the emb"
    ):
        check(bare(here, **arguments))


def test_an_optimizer_that_shards_do_not_have_is_found_by_check(here: Path) -> None:
    with pytest.raises(
        UsageError,
        match=r"^--model bare\.py:build: its optimizer Nadam cannot run on the shards: .*; state one with --optimizer",
    ):
        check(bare(here, optimizer="nadam"))


def test_overlap_with_tables_of_a_users_model_is_found_by_check(here: Path) -> None:
    code = "from grpc_ps.models.embedding import Embedding\nclass Mine(Embedding):\n    pass\n"
    (here / "tabled.py").write_text(code)
    config = WorkerConfig(addresses=(), model="tabled.py:Mine", arguments={}, stated={}, overlap=True)
    with pytest.raises(UsageError, match=r"^--overlap: not for a model with tables"):
        check(config)


def test_check_and_placement_build_what_only_data_builds() -> None:
    config = WorkerConfig(addresses=(), model="mine.py:build", arguments={}, stated={})
    check(config)
    assert [spec.shape for spec in Parameters.of(config).specs] == [(5, 3), (3,), (3, 2), (2,)]
