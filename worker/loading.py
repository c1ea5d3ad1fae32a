"""The model that --model names, one of ours or an attribute of a user's file or module, and its data."""

from __future__ import annotations

import importlib
import logging
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from grpc_ps import models
from grpc_ps.client.shared.errors import DataError, UsageError
from grpc_ps.client.shared.flags import did_you_mean
from grpc_ps.client.shared.logs import event
from grpc_ps.models import (
    Batch,
    DataBundle,
    DataFileError,
    DataLoader,
    Dataset,
    EndlessDataset,
    FitsData,
    Model,
    ModelError,
)
from grpc_ps.models.datasets import ChoiceError, open_data
from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.datasets.own import own_loader
from grpc_ps.worker.config import Value, WorkerConfig
from grpc_ps.worker.device import placed
from grpc_ps.worker.failures import USERS_OWN, describe_error
from grpc_ps.worker.imports import check_place, find_attribute, import_place

ModelFactory: TypeAlias = Callable[[], Model]

PARTS = ("name", "variables", "defaults", "shown", "data", "initialize", "losses", "metrics")
"""What every model has."""
_NAME_DATA = "--data FILE.py:FUNCTION, or a function `data` in the model's file"
_LOGGER = logging.getLogger("grpc_ps.worker")
_MODULE = "grpc_ps_user_model"
_DATA_MODULE = "grpc_ps_user_data"


def check_model(name: str, arguments: Mapping[str, Value]) -> None:
    """Refuses what can be refused without TensorFlow: unknown names and arguments of our models, missing files.

    Raises:
        UsageError: what is wrong with `name` or `arguments`.
    """
    where, colon, attribute = name.partition(":") if not name.endswith(".py") else (name, "", "")
    if colon or where.endswith(".py"):
        check_place(f"--model {name}", where, attribute)
        return
    try:
        entry = models.entry(name)
    except models.UnknownModelError as error:
        raise UsageError(f"--model: {error}, or file.py:attribute, or package.module:attribute") from None
    for key, value in arguments.items():
        _check_argument(name, entry.arguments, key, value)


def _check_argument(model: str, known: Mapping[str, models.Argument], key: str, value: Value) -> None:
    argument = known.get(key)
    if argument is None:
        names = ", ".join(known) or "none"
        hint = did_you_mean(key, list(known))
        raise UsageError(f"--model-arg {key}={value}: {model} has no such argument{hint}; it has: {names}")
    if not isinstance(value, int) or not argument.lowest <= value <= argument.highest:
        allowed = f"a whole number from {argument.lowest} to {argument.highest}"
        raise UsageError(f"--model-arg {key}={value}: must be {allowed}")


def model_factory(name: str, arguments: Mapping[str, Value]) -> ModelFactory:
    """What makes the model; each call makes another one with variables of its own.

    Raises:
        UsageError: there is no such thing, or importing it fails; `check_model` has to be called before.
    """
    where, colon, attribute = name.rpartition(":")
    if not colon:
        ours = models.load(name)
        return lambda: _make(name, ours, arguments, None)
    flag = f"--model {name}"
    module = import_place(flag, where, as_module=_MODULE)
    made = find_attribute(flag, module, attribute)
    if is_keras(made):
        for key, value in arguments.items():
            raise UsageError(f"--model-arg {key}={value}: {name} is a model, which takes none; name a function")
        return _object_factory(name, made, module)
    if not callable(made):
        kind = type(made).__name__
        raise UsageError(f"{flag}: is of type {kind}, expected a class or function that makes the model")
    return lambda: _make(name, made, arguments, module)


def is_keras(value: Any) -> bool:
    """Whether it is a Keras model. Who has one has imported Keras; for others it is not imported."""
    keras: Any = sys.modules.get("keras")
    return keras is not None and isinstance(value, keras.Model)


def _object_factory(name: str, first: Any, module: ModuleType) -> ModelFactory:
    """Makes models of a user's file that has the Keras model itself: by running the file again, for all but one."""
    where, _, attribute = name.rpartition(":")
    ready = [first]

    def again() -> Any:
        if where.endswith(".py"):
            return getattr(import_place(f"--model {name}", where, as_module=_MODULE), attribute)
        return getattr(importlib.reload(module), attribute)

    return lambda: _adapted(name, ready.pop() if ready else again(), again, module)


def _make(name: str, factory: Callable[..., Any], arguments: Mapping[str, Value], module: ModuleType | None) -> Model:
    try:
        model: Model = factory(**arguments)
    except USERS_OWN as error:
        raise UsageError(f"--model {name}: cannot be made: {describe_error(error)}") from error
    if is_keras(model):
        return _adapted(name, model, lambda: factory(**arguments), module)
    missing = [part for part in PARTS if not hasattr(model, part)]
    if missing:
        raise UsageError(f"--model {name}: {type(model).__name__} lacks {', '.join(missing)} (see grpc_ps.models.spec)")
    return model


def _adapted(name: str, model: Any, again: Callable[[], Any], module: ModuleType | None) -> Model:
    from grpc_ps.models.keras_model import KerasModel

    try:
        return KerasModel(model, again, _data_beside(module))
    except ModelError as error:
        raise UsageError(f"--model {name}: {error}") from error


def _data_beside(module: ModuleType | None) -> str | DataLoader | None:
    """The data that a Keras model's own file has: `DATA`, or a function `data`; None if it has none."""
    found = getattr(module, "DATA", None)
    if found is None and callable(getattr(module, "data", None)):
        found = getattr(module, "data", None)
    return found if found is None or isinstance(found, str) else own_loader(found, getattr(found, "__name__", "DATA"))


def check_data_place(name: str) -> None:
    """Refuses a --data with a colon that names no file. Raises UsageError."""
    where, _, attribute = name.rpartition(":")
    check_place(f"--data {name}", where, attribute)


def load_data(model: Model, *, name: str | None, directory: Path | None) -> DataBundle:
    """Loads and checks the model's data whole: its own, or what --data names. Says so where nobody has named any.

    Raises:
        DataError: a file is missing or not what it should be.
        UsageError: the model does not take that data.
    """
    data, what = model.data, f"the data of model {model.name!r}"
    assumed = name is None and directory is None and getattr(model, "has_no_data", False)
    if name is not None and ":" in name:
        where, _, attribute = name.rpartition(":")
        what, name = f"--data {name}", None
        module = import_place(what, where, as_module=_DATA_MODULE)
        data, what = own_loader(find_attribute(what, module, attribute), attribute), f"{what}:"
    bundle = open_bundle(data, what=what, name=name, directory=directory)
    if assumed:
        event(_LOGGER, "no_data_named", logging.WARNING, model=model.name, trains_on=bundle.description, do=_NAME_DATA)
    return replace(bundle, assumed=assumed)


def open_bundle(
    data: str | DataLoader, *, what: str, name: str | None = None, directory: Path | None = None
) -> DataBundle:
    """Loads data whole; `what` it is, for people. Raises what `load_data` does."""
    try:
        bundle = open_data(data, name=name, directory=directory)
        if not isinstance(bundle, DataBundle):
            raise TypeError(f"expected a DataBundle, got {type(bundle).__name__}")
        return bundle
    except DataFileError as error:
        raise DataError(str(error)) from error
    except ChoiceError as error:
        raise UsageError(str(error)) from error
    except USERS_OWN as error:
        raise DataError(f"{what} cannot be loaded: {describe_error(error)}") from error


def fit(model: Model, data: DataBundle, *, name: str) -> Model:
    """Shows the model an example, if it wants to see one, and returns it. `name` is what --model says.

    Raises:
        UsageError: the model does not take this data.
    """
    example = _example(data) if isinstance(model, FitsData) else None
    try:
        if example is not None and isinstance(model, FitsData):
            from grpc_ps.worker.slots import as_fed  # Flags are checked without TensorFlow.

            model.fit_to(*as_fed(example))
        _ = model.variables
    except ModelError as error:
        which = "; no data is named, so these are the embedded digits" if data.assumed else ""
        raise UsageError(f"--model {name}: {error}{which}") from error
    return model


def _example(data: DataBundle) -> Batch | None:
    """A batch of one example; None if none can be had without using it up."""
    train = data.train
    if isinstance(train, Dataset):
        return train.take(_telling(train))
    if isinstance(train, EndlessDataset):
        return train.draw(np.random.Generator(np.random.PCG64([0, 0])), 1)
    found: Batch | None = train.example() if hasattr(train, "example") else None
    return data.test.take(np.arange(1)) if found is None and data.test is not None else found


def _telling(data: Dataset) -> npt.NDArray[np.int64]:
    """The index of the example that tells most: of classes the highest, for which a model may have no place."""
    labels = data.labels if isinstance(data, ArrayDataset) else None
    classes = labels is not None and labels.ndim == 1 and np.issubdtype(labels.dtype, np.integer)
    return np.array([np.argmax(labels) if labels is not None and classes else 0], np.int64)


def model_with_data(config: WorkerConfig, factory: ModelFactory) -> tuple[Model, DataBundle]:
    """Makes a model on its device, loads its data, and fits the one to the other; raises what these do."""
    with placed(config.device):
        model = factory()
    data = load_data(model, name=config.data, directory=config.data_dir)
    with placed(config.device):
        return fit(model, data, name=config.model), data
