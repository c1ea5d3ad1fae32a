"""A user's own data, in whichever of the usual forms a function returns it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from grpc_ps.models.datasets.arrays import ArrayDataset
from grpc_ps.models.spec import DataBundle, DataLoader, Dataset, EndlessDataset, StreamDataset, TrainData

_FORMS = "a DataBundle, a data set, arrays (features, labels), a tf.data.Dataset, or two of those, one to test with"
_KNOWN = ("batch_size", "seed", "share", "shares")
_PLACES = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)


def own_loader(source: Any, name: str) -> DataLoader:
    """The loader of what a user names: a function that is called, or the data itself.

    The function gets --data-dir if it takes anything, without that flag its own default or else None; and `batch_size`,
    `seed`, `share`, `shares` by keyword if it takes those: a function of tf.data may shard by them.
    """

    def load(directory: Path | None) -> DataBundle:
        # A class of a data set has all that its objects have.
        if not callable(source) or (_is_data(source) and not inspect.isclass(source)):
            return as_bundle(source, lambda arguments: source, name)
        takes = tuple(_takes(source, _KNOWN))
        call = _caller(source, directory)
        first = call({"batch_size": 1, "seed": 0, "share": 0, "shares": 1})
        return as_bundle(first, call, name, shared="share" in takes)

    return load


def _caller(function: Callable[..., Any], directory: Path | None) -> Callable[[Mapping[str, int]], Any]:
    takes = _takes(function, _KNOWN)
    parameters = inspect.signature(function).parameters.values()
    first = next((each for each in parameters if each.name not in takes and each.kind in _PLACES), None)
    # A function that knows a folder by itself is told another one only where there is one.
    told = first is not None and (directory is not None or first.default is first.empty)
    places = [directory] if told else []
    return lambda arguments: function(*places, **{key: arguments[key] for key in takes})


def _takes(function: Callable[..., Any], names: tuple[str, ...]) -> list[str]:
    return [name for name in inspect.signature(function).parameters if name in names]


def as_bundle(value: Any, again: Callable[[Mapping[str, int]], Any], name: str, *, shared: bool = False) -> DataBundle:
    """The bundle that is meant by `value`; `again` makes another such value, for a pipeline that a worker runs.

    Raises:
        TypeError: it is nothing of the kind.
    """
    if isinstance(value, DataBundle):
        return value
    train, test = value if _is_pair(value) else (value, None)
    if _is_pipeline(train):
        from grpc_ps.models.datasets.tf_data import TfData

        paired = _is_pair(value)
        data: TrainData = TfData(lambda given: again(given)[0] if paired else again(given), name=name, shared=shared)
    else:
        data = _as_set(train)
    text = f"{name}: {f'{data.examples} examples' if data.examples else data.fingerprint}"
    return DataBundle(train=data, test=None if test is None else _to_test(test), description=text)


def _is_pair(value: Any) -> bool:
    """Whether it is data to train and data to test with, and not features and labels."""
    return isinstance(value, tuple) and len(value) == 2 and all(_is_data(each) for each in value)


def _is_data(value: Any) -> bool:
    sets = (DataBundle, Dataset, EndlessDataset, StreamDataset)
    return isinstance(value, sets) or _is_arrays(value) or _is_pipeline(value) or _is_pair(value)


def _is_arrays(value: Any) -> bool:
    return isinstance(value, (tuple, list)) and len(value) == 2 and all(hasattr(each, "__array__") for each in value)


def _is_pipeline(value: Any) -> bool:
    # Whoever has made one has imported TensorFlow; nobody else must wait for it.
    if not type(value).__module__.startswith("tensorflow."):
        return False
    from grpc_ps.models.datasets.tf_data import is_pipeline

    return is_pipeline(value)


def _as_set(value: Any) -> TrainData:
    if isinstance(value, (Dataset, EndlessDataset, StreamDataset)):
        return value
    if _is_arrays(value):
        features, labels = value
        return ArrayDataset(np.asarray(features), np.asarray(labels))
    raise TypeError(f"expected {_FORMS}; got {type(value).__name__}")


def _to_test(value: Any) -> Dataset:
    if _is_pipeline(value):
        from grpc_ps.models.datasets.tf_data import in_memory

        return in_memory(value)
    data = _as_set(value)
    if not isinstance(data, Dataset):
        raise TypeError("data to test with must have examples by index, or end")
    return data
