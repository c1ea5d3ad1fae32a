"""Models written whole: Keras files and SavedModels that load back in another process, or not at all."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.client.commands.weights import write_weights
from grpc_ps.client.shared.errors import CheckpointError, Mismatch, UsageError
from grpc_ps.client.shared.export_target import check_target, form_of
from grpc_ps.models.mnist import Mnist
from grpc_ps.worker import export as module
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.export import export
from grpc_ps.worker.initial import InitialFile, open_initial
from grpc_ps.worker.loading import model_factory
from grpc_ps.worker.variables import read_values

KERAS = """
import keras

def build():
    inputs = keras.Input((4,))
    found = keras.layers.Dropout(0.5)(keras.layers.BatchNormalization()(keras.layers.Dense(3)(inputs)))
    model = keras.Model(inputs, keras.layers.Dense(2, activation="softmax")(found))
    model.compile(optimizer="adam", loss="sparse_categorical_crossentropy", metrics=["accuracy"])
    return model
"""

LOAD = """
import json, sys
import keras
import numpy as np
import tensorflow as tf
features = np.asarray(json.loads(sys.argv[1]), np.float32)
served = tf.saved_model.load("served")
found = [keras.models.load_model("m.keras")(features, training=False), served.serve(features)]
print(json.dumps(np.asarray(found).tolist()))
"""

FEATURES = np.linspace(-1, 1, 12, dtype=np.float32).reshape(3, 4)


def config(model: str, **arguments: int) -> WorkerConfig:
    return WorkerConfig(addresses=(), model=model, arguments=arguments, stated={})


@pytest.fixture
def weights(tmp_path: Path) -> Callable[[Any], InitialFile]:
    """Writes other values than a model's own into a file of weights."""

    def write(model: Any) -> InitialFile:
        values = {name: value + np.float32(0.25) for name, value in read_values(model.variables).items()}
        write_weights(tmp_path / "w.safetensors", values, {})
        for variable in model.variables:
            variable.assign_add(tf.fill(variable.shape, 0.25))
        return open_initial(tmp_path / "w.safetensors")

    return write


def test_both_forms_of_a_keras_model_load_back_with_the_same_predictions(
    tmp_path: Path, weights: Callable[[Any], InitialFile]
) -> None:
    (tmp_path / "mine.py").write_text(KERAS)
    name = f"{tmp_path / 'mine.py'}:build"
    model: Any = model_factory(name, {})()
    given = weights(model)
    expected = model.keras(FEATURES, training=False).numpy()
    for target, form in ((tmp_path / "m.keras", "keras"), (tmp_path / "served", "saved-model")):
        done = export(config(name), given, target, form=form)
        assert (done.parameters, done.nbytes > 1000) == (8, True)
    command = [sys.executable, "-W", "error::UserWarning", "-c", LOAD, json.dumps(FEATURES.tolist())]
    loaded = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert loaded.returncode == 0, loaded.stderr
    for found in json.loads(loaded.stdout.splitlines()[-1]):
        np.testing.assert_allclose(found, expected, atol=1e-6)
    assert not [path.name for path in tmp_path.iterdir() if path.name.startswith(".")]


def test_a_model_of_ours_is_served_by_its_signature(tmp_path: Path, weights: Callable[[Any], InitialFile]) -> None:
    model = Mnist(hidden=5)
    given = weights(model)
    pixels = np.random.default_rng(0).random((3, 784), dtype=np.float32)
    export(config("mnist", hidden=5), given, tmp_path / "served", form="saved-model")
    served = tf.saved_model.load(str(tmp_path / "served"))
    found = served.signatures["serving_default"](tf.constant(pixels))
    expected = model.predict(tf.constant(pixels))
    assert set(found) == {"classes", "probabilities"}
    np.testing.assert_allclose(found["probabilities"], expected["probabilities"], atol=1e-6)
    with pytest.raises(UsageError, match=r"^--model mnist: is no Keras model"):
        export(config("mnist", hidden=5), given, tmp_path / "m.keras", form="keras")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"hidden": 6}, "--model mnist --model-arg hidden=6: parameter 'hid_w' is floating [784, 6] in the model, and"),
        ({"hidden": 5, "layers": 2}, "is floating [5, 5] in the model, and not there among the weights; give --model"),
    ],
)
def test_weights_of_another_model_are_refused_as_its_workers_are(
    tmp_path: Path, weights: Callable[[Any], InitialFile], arguments: dict[str, int], says: str
) -> None:
    given = weights(Mnist(hidden=5))
    with pytest.raises(Mismatch, match=re.escape(says)) as caught:
        export(config("mnist", **arguments), given, tmp_path / "served", form="saved-model")
    assert (caught.value.exit_code, [path.name for path in tmp_path.iterdir()]) == (2, ["w.safetensors"])
    if "layers" in arguments:
        given = weights(Mnist(**arguments))
        with pytest.raises(Mismatch, match=r"is not there in the model, and floating \[5\] among the weights"):
            export(config("mnist", hidden=5), given, tmp_path / "served", form="saved-model")


def test_what_is_there_stays_where_the_disk_takes_nothing_more(
    tmp_path: Path, weights: Callable[[Any], InitialFile], monkeypatch: pytest.MonkeyPatch
) -> None:
    given = weights(Mnist(hidden=5))
    target = tmp_path / "served"
    export(config("mnist", hidden=5), given, target, form="saved-model")
    before = sorted(path.name for path in target.iterdir())

    def full(model: object, variables: object, path: Path) -> None:
        path.mkdir()
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(module, "_save_served", full)
    with pytest.raises(CheckpointError, match=r"served: cannot be written: No space left on device") as caught:
        export(config("mnist", hidden=5), given, target, form="saved-model")
    assert caught.value.exit_code == 6
    assert sorted(path.name for path in target.iterdir()) == before
    assert sorted(path.name for path in tmp_path.iterdir()) == ["served", "w.safetensors"]


def test_a_saved_model_is_replaced_whole(tmp_path: Path, weights: Callable[[Any], InitialFile]) -> None:
    given = weights(Mnist(hidden=5))
    target = tmp_path / "served"
    target.mkdir()
    (target / "saved_model.pb").write_text("old")
    check_target(target, "saved-model", force=True)
    export(config("mnist", hidden=5), given, target, form="saved-model")
    assert (target / "saved_model.pb").read_bytes() != b"old"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["served", "w.safetensors"]


def test_the_name_says_the_form(tmp_path: Path) -> None:
    assert [form_of(name) for name in ("a.npz", "a.safetensors", "a.keras", "a/", str(tmp_path))] == [
        "npz",
        "safetensors",
        "keras",
        "saved-model",
        "saved-model",
    ]
    with pytest.raises(UsageError, match=r"a\.h5: the name of a file of weights ends in .*, of a Keras model in"):
        form_of("a.h5")
    for contradiction in ("a.keras/", "a.npz/"):
        with pytest.raises(UsageError, match=r"is for a file, and / for the folder of a SavedModel; leave one out"):
            form_of(contradiction)
    for name in ("a.keras", "a.safetensors"):
        with pytest.raises(UsageError, match=r"is for a file, and --format saved-model makes a folder; leave one out"):
            check_target(tmp_path / name, "saved-model", force=True)
    check_target(tmp_path / "v1.2", "saved-model", force=False)


def test_no_folder_but_a_saved_models_is_replaced(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    check_target(tmp_path / "mine", "saved-model", force=False)
    (tmp_path / "mine" / "letter.txt").write_text("dear")
    for force in (False, True):
        with pytest.raises(UsageError, match="has something else in it than a SavedModel"):
            check_target(tmp_path / "mine", "saved-model", force=force)
    (tmp_path / "mine" / "saved_model.pb").write_text("")
    with pytest.raises(UsageError, match="is there already; --force replaces it"):
        check_target(tmp_path / "mine", "saved-model", force=False)
    with pytest.raises(UsageError, match=r"m\.h5: --format keras is for a name that ends in \.keras"):
        check_target(tmp_path / "m.h5", "keras", force=False)
