"""A trained model as a file or folder that Keras or TensorFlow Serving loads: of weights that are given."""

from __future__ import annotations

import os
import secrets
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from grpc_ps.client import ParameterSpec
from grpc_ps.client.shared.blocks import FLOATING
from grpc_ps.client.shared.durable import reporting, sync_folder
from grpc_ps.client.shared.errors import CheckpointError, Mismatch, UsageError
from grpc_ps.client.shared.flags import typed
from grpc_ps.models import Model, ModelError, Predicts
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.device import placed
from grpc_ps.worker.initial import InitialFile, Tensor
from grpc_ps.worker.loading import fit, load_data, model_factory
from grpc_ps.worker.variables import parameter_specs, wire_name

KERAS, SAVED_MODEL = "keras", "saved-model"


@dataclass(frozen=True)
class Exported:
    """What was written: `nbytes` in all."""

    target: Path
    form: str
    parameters: int
    nbytes: int

    def record(self) -> dict[str, object]:
        """For programs."""
        return {"file": str(self.target), "format": self.form, "parameters": self.parameters, "bytes": self.nbytes}

    def line(self) -> str:
        """For people."""
        return f"{self.target}: {self.form}, {self.parameters} parameters, {self.nbytes:,} bytes"


def export(config: WorkerConfig, weights: InitialFile, target: Path, *, form: str) -> Exported:
    """Makes the model, gives it the weights, and writes it; what was there is replaced in one rename.

    Raises:
        UsageError: the model cannot be made, or not be written in that form.
        Mismatch: the weights are another model's.
        DataError: the file of weights cannot be read.
        CheckpointError: the disk does not take it; what was there is as it was.
    """
    model = _made(config)
    write = _keras_writer(config, model) if form == KERAS else _saved_model_writer(config, model)
    specs = parameter_specs(model.variables)
    weights = weights.of(model)
    _check_fits(config, weights.tensors, specs)
    values = weights.load(specs)
    for variable in model.variables:
        variable.assign(values[wire_name(variable)])
    with reporting(target, "written"), _tensorflows_errors(target):
        nbytes = _replace(target, write)
    return Exported(target, form, len(specs), nbytes)


def _check_fits(config: WorkerConfig, weights: Mapping[str, Tensor], specs: Sequence[ParameterSpec]) -> None:
    """Refuses weights that are not exactly the model's: with some left out it would be another one, without a word."""
    arguments = tuple(f"{name}={value}" for name, value in config.arguments.items())
    model = " ".join(typed({"model": config.model, "model_arg": arguments}))
    own = {spec.name: _form(spec.dtype, spec.shape) for spec in specs}
    given = {name: _form(tensor.dtype, tensor.shape) for name, tensor in weights.items()}
    for name in (*own, *sorted(given.keys() - own.keys())):
        mine, theirs = own.get(name, "not there"), given.get(name, "not there")
        if mine != theirs:
            what = f"parameter {name!r} is {mine} in the model, and {theirs} among the weights"
            raise Mismatch(f"{model}: {what}; give --model and --model-arg as the job has them")


def _form(dtype: str, shape: Sequence[int]) -> str:
    """For people, and to be compared: any floating type will do for another one."""
    return f"{'floating' if dtype in FLOATING else dtype} {list(shape)}"


def _made(config: WorkerConfig) -> Model:
    with placed(config.device):
        model = model_factory(config.model, config.arguments)()
        try:
            _ = model.variables
        except ModelError:  # Not built: an example says how.
            fit(model, load_data(model, name=config.data, directory=config.data_dir), name=config.model)
    return model


def _keras_writer(config: WorkerConfig, model: Model) -> Callable[[Path], object]:
    keras_model: Any = getattr(model, "keras", None)
    if keras_model is None:
        raise UsageError(f"--model {config.model}: is no Keras model, and .keras is for those; export it to DIR/")
    if getattr(keras_model, "optimizer", None) is not None:
        # Without a state of its own, if a fresh one, Keras warns whoever loads the model.
        keras_model.optimizer.build(keras_model.trainable_variables)
    return lambda path: keras_model.save(path)


def _saved_model_writer(config: WorkerConfig, model: Model) -> Callable[[Path], object]:
    keras_model: Any = getattr(model, "keras", None)
    if keras_model is not None:
        return lambda path: keras_model.export(path, verbose=False)
    if not isinstance(model, Predicts):
        raise UsageError(f"--model {config.model}: has no `predict` to be served (see grpc_ps.models.optional)")
    return lambda path: _save_served(model, model.variables, path)


def _save_served(model: Predicts, variables: Any, path: Path) -> None:
    served = tf.Module()
    served.variables_of_the_model = list(variables)
    served.serve = tf.function(model.predict, input_signature=[model.serving])
    tf.saved_model.save(served, str(path), signatures={"serving_default": served.serve})


@contextmanager
def _tensorflows_errors(target: Path) -> Iterator[None]:
    """TensorFlow and h5py have errors of their own for a disk that takes nothing more."""
    try:
        yield
    except tf.errors.OpError as error:
        raise CheckpointError(f"{target}: cannot be written: {' '.join(error.message.split())}") from error


def _replace(target: Path, write: Callable[[Path], object]) -> int:
    """Writes under another name beside the target, syncs, and renames; returns the bytes. Raises OSError."""
    # Keras looks at the name's end.
    temporary = target.with_name(f".{target.stem}.{secrets.token_hex(4)}{target.suffix}")
    try:
        write(temporary)
        nbytes = _sync(temporary)
        _rename(temporary, target)
    except BaseException:
        _remove(temporary)
        raise
    sync_folder(target.absolute().parent)
    return nbytes


def _sync(path: Path) -> int:
    files = [each for each in path.rglob("*") if each.is_file()] if path.is_dir() else [path]
    for file in files:
        with file.open("rb") as opened:
            os.fsync(opened.fileno())
    for folder in {file.parent for file in files if path.is_dir()}:
        sync_folder(folder)
    return sum(file.stat().st_size for file in files)


def _rename(temporary: Path, target: Path) -> None:
    """A folder does not replace one that has something in it: that one goes away first, under another name."""
    old = target.with_name(f"{temporary.name}.old")
    if target.is_dir():
        target.rename(old)
    try:
        temporary.rename(target)
    except BaseException:
        if old.exists():
            old.rename(target)
        raise
    _remove(old)


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
