"""Finding the model that --model names, one of ours or an attribute of a user's file or module, and its data."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, TypeAlias

from grpc_ps import models
from grpc_ps.client.shared.errors import DataError, UsageError
from grpc_ps.client.shared.flags import did_you_mean
from grpc_ps.models import DataBundle, DataFileError, Model
from grpc_ps.models.datasets import ChoiceError, open_data
from grpc_ps.worker.config import Value
from grpc_ps.worker.failures import describe_error

ModelFactory: TypeAlias = Callable[[], Model]

_PARTS = ("name", "variables", "defaults", "shown", "data", "initialize", "losses", "metrics")
_MODULE = "grpc_ps_user_model"


def check_model(name: str, arguments: Mapping[str, Value]) -> None:
    """Refuses what can be refused without TensorFlow: unknown names and arguments of our models, missing files.

    Raises:
        UsageError: what is wrong with `name` or `arguments`.
    """
    where, colon, attribute = name.partition(":") if not name.endswith(".py") else (name, "", "")
    if colon or where.endswith(".py"):
        _check_place(name, where, attribute)
        return
    try:
        entry = models.entry(name)
    except models.UnknownModelError as error:
        raise UsageError(f"--model: {error}, or file.py:attribute, or package.module:attribute") from None
    for key, value in arguments.items():
        _check_argument(name, entry.arguments, key, value)


def _check_place(name: str, where: str, attribute: str) -> None:
    if not where or not attribute.isidentifier():
        raise UsageError(f"--model {name}: expected file.py:attribute or package.module:attribute")
    if where.endswith(".py") and not Path(where).is_file():
        raise UsageError(f"--model {name}: there is no file {where}")


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
    made: Any = _attribute(name, _import(name, where), attribute) if colon else models.load(name)
    if not callable(made):
        kind = type(made).__name__
        raise UsageError(f"--model {name}: is of type {kind}, expected a class or function that makes the model")
    return lambda: _make(name, made, arguments)


def _import(name: str, where: str) -> ModuleType:
    try:
        return _import_file(Path(where)) if where.endswith(".py") else _import_module(where)
    except Exception as error:  # Whatever a user's module raises.
        raise UsageError(f"--model {name}: cannot import {where}: {describe_error(error)}") from error


def _import_file(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(_MODULE, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[_MODULE] = module  # Dataclasses and pickles in the file look for their module there.
    spec.loader.exec_module(module)
    return module


def _import_module(where: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # As `python -m` has it; a console script does not.
    return importlib.import_module(where)


def _attribute(name: str, module: ModuleType, attribute: str) -> Any:
    if not hasattr(module, attribute):
        public = sorted(key for key, value in vars(module).items() if callable(value) and not key.startswith("_"))
        hint = did_you_mean(attribute, public)
        raise UsageError(f"--model {name}: no {attribute}{hint}; there are: {', '.join(public) or 'none'}")
    return getattr(module, attribute)


def _make(name: str, factory: Callable[..., Any], arguments: Mapping[str, Value]) -> Model:
    try:
        model: Model = factory(**arguments)
    except Exception as error:  # Whatever a user's model raises.
        raise UsageError(f"--model {name}: cannot be made: {describe_error(error)}") from error
    missing = [part for part in _PARTS if not hasattr(model, part)]
    if missing:
        raise UsageError(f"--model {name}: {type(model).__name__} lacks {', '.join(missing)} (see grpc_ps.models.spec)")
    return model


def load_data(model: Model, *, name: str | None, directory: Path | None) -> DataBundle:
    """Loads and checks the model's data whole.

    Raises:
        DataError: a file is missing or not what it should be.
        UsageError: the model does not take that data.
    """
    try:
        bundle = open_data(model.data, name=name, directory=directory)
        if not isinstance(bundle, DataBundle):
            raise TypeError(f"expected a DataBundle, got {type(bundle).__name__}")
        return bundle
    except DataFileError as error:
        raise DataError(str(error)) from error
    except ChoiceError as error:
        raise UsageError(str(error)) from error
    except Exception as error:  # Whatever a user's loader raises.
        raise DataError(f"the data of model {model.name!r} cannot be loaded: {describe_error(error)}") from error
