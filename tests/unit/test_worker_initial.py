"""First values out of a file: which files fit a model, and what is said of those that do not."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import keras
import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

from grpc_ps.client import ParameterSpec
from grpc_ps.client.shared.errors import DataError
from grpc_ps.models.keras_model import KerasModel
from grpc_ps.models.linear import Linear
from grpc_ps.worker.initial import open_initial
from grpc_ps.worker.variables import parameter_specs

SPECS = (
    ParameterSpec(name="w", shape=(2, 3), dtype="float32"),
    ParameterSpec(name="layer/b", shape=(), dtype="float64"),
    ParameterSpec(name="n", shape=(2,), dtype="int64", trainable=False),
)
W = np.arange(6, dtype=np.float32).reshape(2, 3)
VALUES: dict[str, Any] = {"w": W, "layer/b": np.array(0.5), "n": np.array([3, -4])}


def save(folder: Path, suffix: str = ".npz", **changes: Any) -> Path:
    """Writes the values with changes; None leaves one out."""
    values = {name: value for name, value in {**VALUES, **changes}.items() if value is not None}
    path = folder / f"weights{suffix}"
    if suffix == ".npz":
        np.savez(path, **values)
    else:
        save_file(values, path)
    return path


def save_raw(path: Path, **tensors: tuple[str, list[int], bytes]) -> Path:
    """Writes a safetensors file by hand: its numpy package has no bfloat16."""
    header, body = {}, b""
    for name, (dtype, shape, data) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [len(body), len(body) + len(data)]}
        body += data
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)
    return path


def refusal(path: Path, specs: tuple[ParameterSpec, ...] = SPECS) -> str:
    def read() -> None:
        initial = open_initial(path)
        initial.check(specs)
        initial.load(specs)

    with pytest.raises(DataError) as caught:
        read()
    text = str(caught.value)
    assert caught.value.exit_code == 3
    assert text.startswith(f"{path}: ")
    assert "\n" not in text
    return text.removeprefix(f"{path}: ")


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_values_of_a_file(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path, suffix)
    initial = open_initial(path)
    assert initial.digest == hashlib.sha256(path.read_bytes()).hexdigest()
    assert initial.check(SPECS) == []
    loaded = initial.load(SPECS)
    assert loaded.keys() == VALUES.keys()
    for spec in SPECS:
        assert loaded[spec.name].dtype.name == spec.dtype
        assert np.array_equal(loaded[spec.name], VALUES[spec.name])
        assert loaded[spec.name].shape == spec.shape


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize("has", ["float16", "float64"])
@pytest.mark.parametrize("wants", ["bfloat16", "float16", "float32", "float64"])
def test_floating_point_is_converted(tmp_path: Path, suffix: str, has: str, wants: str) -> None:
    path = save(tmp_path, suffix, w=W.astype(has))
    specs = (ParameterSpec(name="w", shape=(2, 3), dtype=wants),)
    initial = open_initial(path)
    assert initial.check(specs) == ["layer/b", "n"]
    found = initial.load(specs)["w"]
    assert found.dtype.name == wants
    assert np.array_equal(found.astype(np.float32), W)


def test_other_memory_orders_are_the_same_values(tmp_path: Path) -> None:
    path = save(tmp_path, w=np.asfortranarray(W.astype(">f4")))
    initial = open_initial(path)
    assert initial.check(SPECS) == []
    assert np.array_equal(initial.load(SPECS)["w"], W)


@pytest.mark.parametrize("wants", ["bfloat16", "float32"])
def test_bfloat16_in_safetensors(tmp_path: Path, wants: str) -> None:
    bits = W.astype(ml_dtypes.bfloat16).tobytes()
    path = save_raw(tmp_path / "half.safetensors", w=("BF16", [2, 3], bits))
    specs = (ParameterSpec(name="w", shape=(2, 3), dtype=wants),)
    initial = open_initial(path)
    assert initial.check(specs) == []
    assert np.array_equal(initial.load(specs)["w"].astype(np.float32), W)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"w": None}, "has no parameter 'w'; it has layer/b, n"),
        ({"w": W.T.copy()}, "parameter 'w' has shape [3, 2], the model's has [2, 3]"),
        ({"layer/b": np.zeros(1)}, "parameter 'layer/b' has shape [1], the model's has []"),
        ({"n": np.zeros(2, np.int32)}, "parameter 'n' has type int32, the model's has int64"),
        ({"n": np.zeros(2)}, "parameter 'n' has type float64, the model's has int64"),
        ({"w": W.astype(np.int32)}, "parameter 'w' has type int32, the model's has float32"),
        ({"w": W.astype(np.float64) * 1e300}, "parameter 'w' has values that are not finite as float32"),
        ({"layer/b": np.array(np.nan)}, "parameter 'layer/b' has values that are not finite as float64"),
    ],
)
def test_files_that_do_not_fit(tmp_path: Path, suffix: str, changes: dict[str, Any], says: str) -> None:
    assert refusal(save(tmp_path, suffix, **changes)) == says


def test_files_of_another_kind(tmp_path: Path) -> None:
    (tmp_path / "w.bin").write_bytes(b"x")
    assert refusal(tmp_path / "w.bin") == "a file of weights ends in .npz, .safetensors or .keras"
    assert refusal(tmp_path / "none.npz") == "there is no such file"
    (tmp_path / "d.npz").mkdir()
    assert refusal(tmp_path / "d.npz") == "is not a regular file"


def network(units: int = 3) -> keras.Model:
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(units), keras.layers.BatchNormalization()])
    model.compile(optimizer="adam", loss="mse")
    return model


def test_the_weights_of_a_keras_model_by_the_names_of_another_like_it(tmp_path: Path) -> None:
    trained, path = network(), tmp_path / "model.keras"
    trained.fit(np.ones((4, 5)), np.ones((4, 3)), verbose=0)
    trained.save(path)
    model = KerasModel(network())
    specs = parameter_specs(model.variables)
    initial = open_initial(path)
    assert (initial.digest, initial.tensors) == (hashlib.sha256(path.read_bytes()).hexdigest(), {})
    found = initial.of(model)
    assert found.check(specs) == []
    loaded = found.load(specs)
    assert list(loaded) == [spec.name for spec in specs]
    assert specs[0].name == "sequential/dense/kernel"
    for name, weight in zip(loaded, trained.get_weights(), strict=True):
        assert np.array_equal(loaded[name], weight), name
    # What is read stays as it was read, whatever becomes of the model.
    model.variables[0].assign_add(np.ones((5, 3)))
    assert np.array_equal(found.load(specs)["sequential/dense/kernel"], trained.get_weights()[0])


def test_keras_files_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "model.keras"
    network().save(path)
    with pytest.raises(DataError, match=r"model\.keras: cannot be read as weights: .*shape"):
        open_initial(path).of(KerasModel(network(units=4)))
    with pytest.raises(DataError, match=r"model\.keras: has the weights of a Keras model, and linear is none$"):
        open_initial(path).of(Linear())
    path.write_bytes(path.read_bytes()[:-30])
    assert refusal(path).startswith("cannot be read as weights: ")
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("other", b"x")
    assert refusal(path) == "cannot be read as weights: there is no model.weights.h5 in it: was it written by Keras 3?"


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_damaged_files(tmp_path: Path, suffix: str) -> None:
    path = save(tmp_path, suffix)
    whole = path.read_bytes()
    for part in (whole[:-1], whole[: len(whole) // 2], whole[:10], b"", b"<!DOCTYPE html>" * 20):
        path.write_bytes(part)
        assert refusal(path).startswith("cannot be read as weights: ")


def test_changed_bytes_of_an_npz_file_are_noticed(tmp_path: Path) -> None:
    path = save(tmp_path)
    data = bytearray(path.read_bytes())
    data[data.index(W.tobytes()) + 7] ^= 1
    path.write_bytes(data)
    assert refusal(path) == "cannot be read as weights: w.npy is damaged"


class Bomb:
    """Would make a folder when it is unpickled."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __reduce__(self) -> tuple[Any, tuple[Any, ...]]:
        return Path.mkdir, (self.folder,)


def test_pickles_are_refused_and_not_run(tmp_path: Path) -> None:
    trap = tmp_path / "ran"
    path = tmp_path / "weights.npz"
    np.savez(path, **{**VALUES, "w": np.array([Bomb(trap)], dtype=object)})
    assert refusal(path) == (
        "cannot be read as weights: w.npy is pickled, which could run code of its own: save arrays of numbers"
    )
    path.write_bytes(pickle.dumps(Bomb(trap)))
    assert refusal(path).startswith("cannot be read as weights: ")
    assert not trap.exists()


def test_a_file_that_changes_after_it_was_checked_is_refused(tmp_path: Path) -> None:
    path = save(tmp_path)
    initial = open_initial(path)
    save(tmp_path, w=W + 1)
    with pytest.raises(DataError, match="has changed since it was checked"):
        initial.load(SPECS)


@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_a_pipe_is_refused_and_not_waited_for(tmp_path: Path, suffix: str) -> None:
    pipe = tmp_path / f"weights{suffix}"
    os.mkfifo(pipe)
    with pytest.raises(DataError, match="is not a regular file"):
        open_initial(pipe)
