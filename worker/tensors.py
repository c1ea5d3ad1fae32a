"""Memory that numpy and TensorFlow share without a copy."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from grpc_ps.client.shared.image import ALIGNMENT, aligned_buffer
from grpc_ps.models import Array

_SHARED = frozenset(np.dtype(name) for name in ("float16", "float32", "float64", "int32", "int64"))


def aligned_array(shape: tuple[int, ...], dtype: np.dtype[np.generic]) -> npt.NDArray[np.generic]:
    """A zeroed array in memory that `share` takes."""
    nbytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    return aligned_buffer(nbytes).view(dtype).reshape(shape)


def share(array: Array) -> tf.Tensor | None:
    """A tensor on the CPU over the array's own memory, or None where that is not possible.

    TensorFlow aborts the process at the first operation on memory that is not 64-byte aligned, and does not take every
    type through DLPack: so this is decided here.
    """
    usable = array.flags.c_contiguous and array.flags.writeable and array.size > 0
    if not usable or array.dtype not in _SHARED or array.ctypes.data % ALIGNMENT != 0:
        return None
    return tf.experimental.dlpack.from_dlpack(array.__dlpack__())
