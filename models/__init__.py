"""What is trained: the models by name. Listing them imports neither a model nor TensorFlow."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from grpc_ps.models.optional import BatchLoss, BatchMetrics, FitsData, ModelError, Predicts, Seeded
from grpc_ps.models.spec import (
    Array,
    AugmentedDataset,
    Batch,
    DataBundle,
    DataFileError,
    DataLoader,
    Dataset,
    EndlessDataset,
    Lookup,
    Model,
    ModelDefaults,
    StreamDataset,
    Table,
    TableModel,
    TrainData,
)

__all__ = [
    "MODELS",
    "Argument",
    "Array",
    "AugmentedDataset",
    "Batch",
    "BatchLoss",
    "BatchMetrics",
    "DataBundle",
    "DataFileError",
    "DataLoader",
    "Dataset",
    "EndlessDataset",
    "FitsData",
    "Lookup",
    "Model",
    "ModelDefaults",
    "ModelEntry",
    "ModelError",
    "Predicts",
    "Seeded",
    "StreamDataset",
    "Table",
    "TableModel",
    "TrainData",
    "UnknownModelError",
    "entry",
    "load",
]


class UnknownModelError(ValueError):
    """No model has this name. The text lists those there are."""


@dataclass(frozen=True, kw_only=True)
class Argument:
    """A whole number that the model takes by keyword, within `lowest` and `highest`."""

    lowest: int
    highest: int


@dataclass(frozen=True, kw_only=True)
class ModelEntry:
    """What is known of a model without importing it.

    `target` is "module:attribute", `data` its default data set; `tables` says whether it has tables.
    """

    target: str
    data: str
    arguments: Mapping[str, Argument]
    tables: bool = False


MODELS: Mapping[str, ModelEntry] = MappingProxyType(
    {
        "cifar10": ModelEntry(target="grpc_ps.models.cifar10:Cifar10", data="cifar10", arguments={}),
        "embedding": ModelEntry(
            target="grpc_ps.models.embedding:Embedding",
            data="zipf",
            tables=True,
            arguments={
                "rows": Argument(lowest=1, highest=2**40),
                "dim": Argument(lowest=1, highest=65536),
                "ids": Argument(lowest=1, highest=1_000_000),
                "lazy": Argument(lowest=0, highest=1),
            },
        ),
        "linear": ModelEntry(target="grpc_ps.models.linear:Linear", data="line", arguments={}),
        "mnist": ModelEntry(
            target="grpc_ps.models.mnist:Mnist",
            data="digits",
            arguments={
                "hidden": Argument(lowest=1, highest=1_000_000),
                "layers": Argument(lowest=1, highest=100),
            },
        ),
    }
)


def entry(name: str) -> ModelEntry:
    """The entry of the model of this name.

    Raises:
        UnknownModelError: there is none.
    """
    try:
        return MODELS[name]
    except KeyError:
        close = difflib.get_close_matches(name.lower(), MODELS, n=1)
        hint = f", did you mean {close[0]!r}?" if close else ";"
        raise UnknownModelError(f"unknown model {name!r}{hint} known models: {', '.join(sorted(MODELS))}") from None


def load(name: str) -> Callable[..., Model]:
    """Imports a model's module and returns what makes the model: called with its arguments by keyword."""
    module, attribute = entry(name).target.split(":")
    made: Any = getattr(importlib.import_module(module), attribute)
    return made  # type: ignore[no-any-return]
