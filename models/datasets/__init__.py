"""The data sets by name. Each module's `load(directory)` returns a `DataBundle`; none imports TensorFlow."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from grpc_ps.models.spec import DataBundle, DataLoader

__all__ = ["CHOICES", "ChoiceError", "choose", "open_data"]

CHOICES = ("digits", "synthetic")
"""What a user can ask for by name. All are images of 28x28 in ten classes."""

_MODULES: Mapping[str, str] = MappingProxyType(
    {
        "digits": "grpc_ps.models.datasets.digits",
        "idx": "grpc_ps.models.datasets.idx",
        "line": "grpc_ps.models.datasets.line",
        "synthetic": "grpc_ps.models.datasets.synthetic",
    }
)


class ChoiceError(ValueError):
    """The model does not take the data that is asked for. The text begins with the flag."""


def choose(default: str, *, name: str | None, directory: Path | None) -> str:
    """The data set of a model whose default is `default`, given --data and --data-dir: a folder holds `idx` files.

    Raises:
        ChoiceError: both are given, or the model takes neither.
    """
    if name is not None and directory is not None:
        raise ChoiceError(f"--data {name} and --data-dir {directory} exclude each other")
    chosen = name or ("idx" if directory is not None else default)
    if chosen != default and default not in CHOICES:
        flag = f"--data {name}" if name is not None else f"--data-dir {directory}"
        raise ChoiceError(f"{flag}: this model has its own data ({default!r})")
    return chosen


def open_data(data: str | DataLoader, *, name: str | None = None, directory: Path | None = None) -> DataBundle:
    """Loads a model's data whole; `data` is its attribute of that name, the rest as in `choose`.

    Raises:
        DataFileError: a file is missing or not what it should be.
        ChoiceError: as `choose`.
    """
    if not isinstance(data, str):
        if name is not None:
            raise ChoiceError(f"--data {name}: this model has its own data")
        return data(directory)
    module = importlib.import_module(_MODULES[choose(data, name=name, directory=directory)])
    bundle: DataBundle = module.load(directory)
    return bundle
