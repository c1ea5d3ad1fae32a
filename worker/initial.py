"""First values out of a file of weights (--init-from), in place of those that the seed gives."""

from __future__ import annotations

import hashlib
import logging
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from grpc_ps.client import ParameterSpec
from grpc_ps.client.shared.blocks import FLOATING
from grpc_ps.client.shared.checkpoint_format import MANIFEST
from grpc_ps.client.shared.checkpoint_part import DTYPES
from grpc_ps.client.shared.errors import DataError
from grpc_ps.client.shared.image import numpy_dtype
from grpc_ps.client.shared.logs import event
from grpc_ps.models import Array

_LOGGER = logging.getLogger("grpc_ps.worker")

KERAS = ".keras"
SUFFIXES = (".npz", ".safetensors", KERAS)
# Where such a file has its weights.
_KERAS_WEIGHTS = "model.weights.h5"


@dataclass(frozen=True)
class Tensor:
    """What the file's header says of one tensor."""

    shape: tuple[int, ...]
    dtype: str


@dataclass(frozen=True)
class InitialFile:
    """A file whose header has been read. `digest` is the hex sha256 of all its bytes.

    What a .keras file has is known with a model alone: see `of`.
    """

    path: Path
    digest: str
    tensors: Mapping[str, Tensor]
    values: Mapping[str, Array] | None = field(default=None, compare=False)

    def of(self, model: Any) -> InitialFile:
        """The file as it is for a model that is built: weights of a .keras file get the names that the model has.

        They go into the model's variables on the way. Nothing of the file is executed: the model is not made from it.

        Raises:
            DataError: the model is no Keras model, or another one than the file's.
        """
        if self.path.suffix != KERAS:
            return self
        keras_model = getattr(model, "keras", None)
        if keras_model is None:
            raise DataError(f"{self.path}: has the weights of a Keras model, and {model.name} is none")
        # Keras warns of an optimizer's state, which a job does not take from a file.
        with _reading(self.path), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            keras_model.load_weights(self.path)
            self._check_unchanged()
        from grpc_ps.worker.variables import read_values  # Flags are checked without TensorFlow.

        values = {name: np.array(value) for name, value in read_values(model.variables).items()}
        tensors = {name: Tensor(value.shape, value.dtype.name) for name, value in values.items()}
        return replace(self, tensors=tensors, values=values)

    def _check_unchanged(self) -> None:
        if _digest(self.path) != self.digest:
            raise ValueError("has changed since it was checked")

    def check(self, specs: Sequence[ParameterSpec]) -> list[str]:
        """Refuses a file that has not every parameter in its shape and kind. Returns the names it has beyond them.

        Raises:
            DataError: names the file, the parameter and both forms of it.
        """
        for spec in specs:
            tensor = self.tensors.get(spec.name)
            if tensor is None:
                raise DataError(f"{self.path}: has no parameter {spec.name!r}; it has {_some(self.tensors)}")
            self._compare(spec, "shape", list(tensor.shape), list(spec.shape))
            both_floating = {tensor.dtype, spec.dtype} <= set(FLOATING)
            if not both_floating:
                self._compare(spec, "type", tensor.dtype, spec.dtype)
        return sorted(self.tensors.keys() - {spec.name for spec in specs})

    def _compare(self, spec: ParameterSpec, what: str, has: object, wanted: object) -> None:
        if has != wanted:
            raise DataError(f"{self.path}: parameter {spec.name!r} has {what} {has}, the model's has {wanted}")

    def load(self, specs: Sequence[ParameterSpec]) -> dict[str, Array]:
        """The parameters' values, in the types of the model; the file must have been checked.

        Raises:
            DataError: the file cannot be read any more, has changed, or has a value that is not finite in that type.
        """
        with _reading(self.path):
            found = self.values or self._read([spec.name for spec in specs])
            self._check_unchanged()
        return {spec.name: self._convert(spec, found[spec.name]) for spec in specs}

    def _read(self, names: Sequence[str]) -> Mapping[str, Array]:
        return _load_npz(self.path, names) if self.path.suffix == ".npz" else _load_safetensors(self.path, names)

    def _convert(self, spec: ParameterSpec, array: Array) -> Array:
        with np.errstate(over="ignore"):  # What overflows is infinite, and so refused.
            converted = array.astype(numpy_dtype(spec.dtype))
        if spec.dtype in FLOATING and not np.isfinite(converted).all():
            raise DataError(f"{self.path}: parameter {spec.name!r} has values that are not finite as {spec.dtype}")
        return converted


def check_initial(initial: InitialFile, specs: Sequence[ParameterSpec]) -> None:
    """As `InitialFile.check`, and warns of what the file has beyond the model's parameters."""
    if more := initial.check(specs):
        event(_LOGGER, "init_from_unused", logging.WARNING, file=initial.path, parameters=", ".join(more))


def open_initial(path: Path) -> InitialFile:
    """Reads the header of a file of weights and the hash of its bytes. Needs no TensorFlow.

    Raises:
        DataError: there is no such file, or it is not what its name says.
    """
    _refuse_checkpoint(path)
    if path.suffix not in SUFFIXES:
        raise DataError(f"{path}: a file of weights ends in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if path.exists() and not path.is_file():  # Opening a pipe would wait for somebody to write to it.
        raise DataError(f"{path}: is not a regular file")
    with _reading(path):
        headers = {".npz": _npz_header, ".safetensors": _safetensors_header, KERAS: _keras_header}
        return InitialFile(path, _digest(path), headers[path.suffix](path))


def _refuse_checkpoint(path: Path) -> None:
    folder = path.parent if path.name.startswith("shard-") else path
    if (folder / MANIFEST).exists() or any(folder.glob(f"step-*/{MANIFEST}")):
        export = f"psctl export FILE.safetensors --checkpoint {folder}"
        raise DataError(f"{path}: is a checkpoint; make a file of its weights with: {export}")


@contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError:
        raise DataError(f"{path}: there is no such file") from None
    except Exception as error:  # Both formats' readers raise whatever a damaged file leads them to.
        text = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise DataError(f"{path}: cannot be read as weights: {' '.join(text.split())}") from error


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while part := file.read(1 << 20):
            digest.update(part)
    return digest.hexdigest()


def _keras_header(path: Path) -> dict[str, Tensor]:
    """Nothing: a model says which weights are which. Raises ValueError for what is no such file, or damaged."""
    with zipfile.ZipFile(path) as archive:
        if _KERAS_WEIGHTS not in archive.namelist():
            raise ValueError(f"there is no {_KERAS_WEIGHTS} in it: was it written by Keras 3?")
        if (damaged := archive.testzip()) is not None:
            raise ValueError(f"{damaged} is damaged")
    return {}


def _npz_header(path: Path) -> dict[str, Tensor]:
    with zipfile.ZipFile(path) as archive:
        damaged = archive.testzip()
        if damaged is not None:
            raise ValueError(f"{damaged} is damaged")
        return {name.removesuffix(".npy"): _npy_header(archive, name) for name in archive.namelist()}


def _npy_header(archive: zipfile.ZipFile, name: str) -> Tensor:
    with archive.open(name) as file:
        shape, dtype = _read_npy_header(file)  # type: ignore[arg-type]  # it reads, which is all that is asked of it
    if dtype.hasobject:
        raise ValueError(f"{name} is pickled, which could run code of its own: save arrays of numbers")
    return Tensor(shape, dtype.name)


def _read_npy_header(file: BinaryIO) -> tuple[tuple[int, ...], np.dtype[Any]]:
    version = np.lib.format.read_magic(file)
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    shape, _, dtype = read(file)
    return shape, dtype


def _load_npz(path: Path, names: Sequence[str]) -> dict[str, Array]:
    with np.load(path, allow_pickle=False) as archive:
        return {name: archive[name] for name in names}


def _safetensors_header(path: Path) -> dict[str, Tensor]:
    from safetensors import safe_open

    with safe_open(path, framework="numpy") as file:
        parts = {name: file.get_slice(name) for name in file.keys()}  # noqa: SIM118  # it is no mapping
        return {name: Tensor(tuple(part.get_shape()), _type_name(part.get_dtype())) for name, part in parts.items()}


def _type_name(name: str) -> str:
    return DTYPES.get(name, name)


def _load_safetensors(path: Path, names: Sequence[str]) -> dict[str, Array]:
    from safetensors import deserialize

    tensors = deserialize(path.read_bytes())  # type: ignore[no-untyped-call]
    # The package makes arrays of numpy's own types only, and bfloat16 is none; so they are made here.
    found = {name: tensor for name, tensor in tensors if name in names}
    return {name: _array(tensor) for name, tensor in found.items()}


def _array(tensor: Mapping[str, Any]) -> Array:
    return np.frombuffer(tensor["data"], numpy_dtype(_type_name(tensor["dtype"]))).reshape(tensor["shape"])


def _some(names: Mapping[str, object]) -> str:
    shown = sorted(names)[:5]
    more = len(names) - len(shown)
    return (", ".join(shown) or "none") + (f" and {more} more" if more else "")
