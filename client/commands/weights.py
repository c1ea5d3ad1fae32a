"""Files of a model's weights: what `psctl export` writes and `worker --init-from` reads."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, BinaryIO

import ml_dtypes
import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.checkpoint_part import Tensor, write_tensors
from grpc_ps.client.shared.durable import replacing, reporting

Array = npt.NDArray[Any]

SUFFIXES = (".safetensors", ".npz")


def write_weights(path: Path, values: Mapping[str, Array], metadata: Mapping[str, str]) -> int:
    """Writes whole parameters in their shapes into a new file, which appears when it is whole. Returns its bytes.

    By the name's end it is one of `SUFFIXES`. `metadata` is for .safetensors alone. NumPy's own format has no bfloat16:
    in .npz that is float32, which has all its values.

    Raises:
        CheckpointError: it cannot be written; what was there is as it was.
    """
    with reporting(path, "written"):
        if path.suffix == ".npz":
            with replacing(path) as file:
                _write_npz(file, values)
        else:
            tensors = [
                Tensor(name, array.dtype.name, array.shape, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
                for name, array in values.items()
            ]
            write_tensors(path, tensors, metadata)
        return path.stat().st_size


def _write_npz(file: BinaryIO, values: Mapping[str, Array]) -> None:
    # Through a buffer: the archive does not look how much an unbuffered file has taken. And not by np.savez, to which a
    # parameter of the name `file` would be an argument.
    buffered = io.BufferedWriter(file)
    with zipfile.ZipFile(buffered, "w") as archive:
        for name, array in values.items():
            plain = array.astype(np.float32) if array.dtype == ml_dtypes.bfloat16 else array
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                np.lib.format.write_array(entry, plain, allow_pickle=False)
    buffered.detach()
