"""The model and data that a program hands over, as objects in place of flags."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.models import Array, DataBundle, Model, ModelError
from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.datasets.own import own_loader
from grpc_ps.models.function_model import FunctionModel
from grpc_ps.worker.fed import ProgramData
from grpc_ps.worker.loading import PARTS, ModelFactory, check_model, is_keras, load_data, model_factory, open_bundle

Source: TypeAlias = Any
"""A model, what makes one, a function of losses, or a name as --model has it."""


def given(
    name: str,
    model: Source,
    *,
    variables: Mapping[str, tf.Variable] | Sequence[tf.Variable] | None,
    data: Any,
    test: tuple[Array, Array] | None,
) -> tuple[ModelFactory, DataBundle]:
    """What makes the model, and its data. `data` is as in `MonitoredSession`.

    Raises:
        UsageError: the model is nothing of that kind.
        DataError: the data cannot be loaded.
    """
    factory = _factory(name, model, variables)
    first = factory()
    bundle = _bundle(first, data)
    if test is not None:
        held_out = _held_out(test)
        bundle = DataBundle(train=bundle.train, test=held_out, description=bundle.description)
    made = [first]
    return lambda: made.pop() if made else factory(), bundle


def _held_out(test: Any) -> ArrayDataset:
    try:
        features, labels = (np.asarray(each) for each in test)
        return ArrayDataset(features, labels)
    except (TypeError, ValueError) as error:
        raise UsageError(f"test: must be arrays (features, labels) of one length: {error}") from None


def _bundle(model: Model, data: Any) -> DataBundle:
    if data is None:
        return DataBundle(train=ProgramData(), test=None, description="batches of the program")
    if data is True and getattr(model, "has_no_data", False):
        raise UsageError("data: the model has none of its own; give arrays (features, labels), or what returns them")
    if data is True or isinstance(data, str):
        return load_data(model, name=None if data is True else data, directory=None)
    return open_bundle(own_loader(data, "data"), what="data")


def _factory(
    name: str, model: Source, variables: Mapping[str, tf.Variable] | Sequence[tf.Variable] | None
) -> ModelFactory:
    ready = not isinstance(model, type) and all(hasattr(model, part) for part in PARTS)
    if variables is not None and (isinstance(model, str) or is_keras(model) or ready):
        raise UsageError("variables: only with a loss function; a model has its own")
    if isinstance(model, str):
        check_model(model, {})
        return model_factory(model, {})
    if is_keras(model):
        return _keras_factory(model)
    if ready:
        return _only(model)
    if not callable(model):
        raise UsageError(
            f"model: is of type {type(model).__name__}; expected a model, what makes one, or a loss function"
        )
    if variables is not None:
        return _only(FunctionModel(model, _checked(variables)))
    _check_makes_one(model)
    return lambda: _made(name, model)


def _checked(variables: Any) -> Mapping[str, tf.Variable] | Sequence[tf.Variable]:
    """What a loss function trains, if it is that."""
    if isinstance(variables, tf.Variable) or not isinstance(variables, (Mapping, Iterable)):
        raise UsageError(f"variables: must be a list of tf.Variable, or names with them; it is {_brief(variables)}")
    found = variables if isinstance(variables, Mapping) else dict(enumerate(variables, 1))
    if not found:
        raise UsageError("variables: there is none in it, and so nothing to train")
    for key, value in found.items():
        if not isinstance(value, tf.Variable):
            raise UsageError(f"variables: {key!r} is {_brief(value)}; expected a tf.Variable")
    return variables if isinstance(variables, Mapping) else tuple(found.values())


def _brief(value: Any) -> str:
    return f"of type {type(value).__name__}"


def _check_makes_one(make: Callable[..., Any]) -> None:
    """Refuses what needs arguments: it makes no model by itself, and is perhaps a loss function."""
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # Of what is written in C nothing is known.
        return
    variadic = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    needs = [each.name for each in parameters if each.default is each.empty and each.kind not in variadic]
    if not needs:
        return
    name = getattr(make, "__name__", type(make).__name__)
    if len(needs) == 2 and not isinstance(make, type):
        raise UsageError(
            f"variables: must be given with a loss function as {name}({', '.join(needs)}): variables=[w, b]"
        )
    raise UsageError(
        f"model: {name} needs {', '.join(needs)}; give what makes the model by itself: lambda: {name}(...)"
    )


def _only(model: Any) -> ModelFactory:
    """A model of which there is one."""
    models = [model]

    def make() -> Model:
        if not models:
            raise UsageError("model: evaluation needs another one like it; give the class or function that makes it")
        return models.pop()  # type: ignore[no-any-return]

    return make


def _made(name: str, make: Callable[[], Any]) -> Model:
    model = make()
    if is_keras(model):
        return _adapted(model, make)
    missing = [part for part in PARTS if not hasattr(model, part)]
    if missing:
        raise UsageError(
            f"{name}: {type(model).__name__} lacks {', '.join(missing)}; a loss function needs `variables`"
        )
    return model  # type: ignore[no-any-return]


def _keras_factory(model: Any) -> ModelFactory:
    """Makes copies of a Keras model that there is; the job begins with the values that it has."""
    import keras

    def copy() -> Any:
        other = keras.models.clone_model(model)
        if model.compiled:
            other.compile_from_config(model.get_compile_config())
        return other

    first = [model]
    return lambda: _adapted(first.pop() if first else copy(), None)


def _adapted(model: Any, again: Callable[[], Any] | None) -> Model:
    from grpc_ps.models.keras_model import KerasModel

    try:
        return KerasModel(model, again)
    except ModelError as error:
        raise UsageError(f"model: {error}") from error
