"""The model and data that a program hands over, as objects in place of flags."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
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
        held_out = ArrayDataset(np.asarray(test[0]), np.asarray(test[1]))
        bundle = DataBundle(train=bundle.train, test=held_out, description=bundle.description)
    made = [first]
    return lambda: made.pop() if made else factory(), bundle


def _bundle(model: Model, data: Any) -> DataBundle:
    if data is None:
        return DataBundle(train=ProgramData(), test=None, description="batches of the program")
    if data is True or isinstance(data, str):
        return load_data(model, name=None if data is True else data, directory=None)
    return open_bundle(own_loader(data, "data"), of=model.name)


def _factory(
    name: str, model: Source, variables: Mapping[str, tf.Variable] | Sequence[tf.Variable] | None
) -> ModelFactory:
    if isinstance(model, str):
        check_model(model, {})
        return model_factory(model, {})
    if variables is not None:
        return _only(FunctionModel(model, variables))
    if is_keras(model):
        return _keras_factory(model)
    if not isinstance(model, type) and all(hasattr(model, part) for part in PARTS):
        return _only(model)
    if not callable(model):
        raise UsageError(
            f"model: is of type {type(model).__name__}; expected a model, what makes one, or a loss function"
        )
    return lambda: _made(name, model)


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
