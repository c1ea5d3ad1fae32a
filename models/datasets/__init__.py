"""The data sets by name. Each `load(directory)` returns a `DataBundle`; none imports TensorFlow."""

from __future__ import annotations

import difflib
import importlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, TypeAlias

from grpc_ps.models.spec import DataBundle, DataLoader

__all__ = [
    "CHOICES",
    "PARTS",
    "ChoiceError",
    "Progress",
    "check_name",
    "choose",
    "download_data",
    "open_data",
    "parts_of",
]

Progress: TypeAlias = Callable[[str, int, int], None]
"""Told of a download: the name of a file, the bytes of it that are here, and all there are."""

CHOICES = ("digits", "synthetic")
"""What a user can ask for by name without having files."""

PARTS = tuple(f"data_batch_{number}" for number in range(1, 6))
"""Files to train on that a user can ask for by name: those of CIFAR-10."""


@dataclass(frozen=True, kw_only=True)
class _Family:
    """Data sets that a model takes one for the other: the one in files, and those that need none by their names."""

    files: str
    parts: tuple[str, ...] = ()
    named: Mapping[str, str]
    default: str


_FAMILIES: Mapping[str, _Family] = MappingProxyType(
    {
        "digits": _Family(files="idx", named={"digits": "digits", "synthetic": "synthetic"}, default="digits"),
        "cifar10": _Family(files="cifar10", parts=PARTS, named={"synthetic": "crops"}, default="synthetic"),
    }
)
"""By the name that a model's `data` has."""

_LOADERS: Mapping[str, str] = MappingProxyType(
    {
        "cifar10": "grpc_ps.models.datasets.cifar:load",
        "crops": "grpc_ps.models.datasets.cifar:synthetic",
        "digits": "grpc_ps.models.datasets.digits:load",
        "idx": "grpc_ps.models.datasets.idx:load",
        "line": "grpc_ps.models.datasets.line:load",
        "synthetic": "grpc_ps.models.datasets.synthetic:load",
        "zipf": "grpc_ps.models.datasets.zipf:load",
    }
)


_DOWNLOADS: Mapping[str, str] = MappingProxyType(
    {
        "cifar10": "grpc_ps.models.datasets.cifar:download",
        "idx": "grpc_ps.models.datasets.idx:download",
    }
)


class ChoiceError(ValueError):
    """The model does not take the data that is asked for. The text begins with the flag."""


def parts_of(name: str | None) -> tuple[str, ...]:
    """The files that a name lists, such as "data_batch_1,data_batch_3"; none if it is another name."""
    parts = tuple(name.split(",")) if name else ()
    return parts if set(parts) <= set(PARTS) and len(set(parts)) == len(parts) else ()


def choose(default: str, *, name: str | None, directory: Path | None) -> str:
    """The data set of a model whose `data` is `default`, given --data and --data-dir.

    Raises:
        ChoiceError: they exclude each other, or the model takes neither.
    """
    family, parts = _FAMILIES.get(default), parts_of(name)
    if parts and family is not None and family.parts:
        if directory is None:
            raise ChoiceError(f"--data {name}: names files, so it needs --data-dir with the folder that has them")
        return family.files
    if name is not None and family is not None and name not in family.named:
        raise ChoiceError(f"--data {name}: this model takes {_proposed(name, family.named, family.parts)}")
    if name is not None and directory is not None:
        raise ChoiceError(f"--data {name} and --data-dir {directory} exclude each other")
    if family is None:
        return _only(default, name, directory)
    return family.files if directory is not None else family.named[name or family.default]


def check_name(name: str) -> None:
    """Refuses what no model of ours takes as --data; raises ChoiceError."""
    if name not in CHOICES and not parts_of(name):
        raise ChoiceError(f"--data {name}: must be {_proposed(name, CHOICES, PARTS)}")


def _proposed(name: str, words: Iterable[str], parts: Sequence[str]) -> str:
    """What there is in place of a name, the closest in the end."""
    kinds = [*words, *([f"some of {parts[0]} to {parts[-1]}"] if parts else []), "file.py:attribute"]
    wrong = next((each for each in name.split(",") if each not in parts), name)
    close = difflib.get_close_matches(wrong.lower(), [*words, *parts], n=1)
    return f"{', '.join(kinds[:-1])} or {kinds[-1]}" + (f" (did you mean {close[0]}?)" if close else "")


def _only(default: str, name: str | None, directory: Path | None) -> str:
    """The choice of a model that has one data set only."""
    if directory is None and name in (None, default):
        return default
    flag = f"--data {name}" if name is not None else f"--data-dir {directory}"
    raise ChoiceError(f"{flag}: this model has its own data ({default!r})")


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
    load = _imported(_LOADERS[choose(data, name=name, directory=directory)])
    bundle: DataBundle = load(directory, *parts_of(name))
    return bundle


def download_data(
    data: str | DataLoader,
    *,
    name: str | None,
    directory: Path,
    base: str | None,
    progress: Progress,
) -> None:
    """Fetches those of a model's data files that are not in `directory`; the rest as in `open_data`.

    Args:
        base: the address that has them; None for their publisher's.
        progress: told the name of a file, the bytes that are here, and all there are.

    Raises:
        DataFileError: one cannot be had, or is not what was published.
        ChoiceError: the model's data are not among those that can be downloaded.
    """
    if not isinstance(data, str):
        raise ChoiceError("--download: this model has its own data")
    fetch = _imported(_DOWNLOADS[choose(data, name=name, directory=directory)])
    fetch(directory, base, progress)


def _imported(target: str) -> Callable[..., Any]:
    module, attribute = target.split(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), attribute)
    return found
