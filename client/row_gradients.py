"""Gradients of a table's rows as programs have them: in any order, and of a row as often as it was looked up."""

from __future__ import annotations

from typing import Any

import numpy as np

from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.rows import Rows


def as_rows(table: str, gradient: Any) -> Rows:
    """The rows of a push: ids that rise, each with the sum of what was given for it, in the order given.

    Args:
        table: its name, for errors.
        gradient: what has `indices`, which are ids, and `values`, as a tf.IndexedSlices; or a pair (ids, values). Ids
            are whole numbers of any shape, values have one more extent.

    Raises:
        InvalidPush: it is nothing of that kind, or the shapes do not fit.
    """
    try:
        slices = hasattr(gradient, "indices") and hasattr(gradient, "values")
        given = (gradient.indices, gradient.values) if slices else gradient
        ids, values = (np.asarray(part) for part in given)
    except (TypeError, ValueError):
        kind = type(gradient).__name__
        raise InvalidPush(f"table {table}: expected tf.IndexedSlices or a pair (ids, values), got {kind}") from None
    fits = values.ndim == ids.ndim + 1 and values.shape[:-1] == ids.shape
    if not fits or not (np.issubdtype(ids.dtype, np.integer) or not ids.size):
        got = f"ids {ids.dtype.name}{list(ids.shape)} and values of shape {list(values.shape)}"
        raise InvalidPush(f"table {table}: expected whole numbers as ids, and a row of values for each; got {got}")
    return _summed(ids.reshape(-1).astype(np.int64), values.reshape(-1, values.shape[-1]).astype(np.float32))


def _summed(ids: Any, values: Any) -> Rows:
    order = np.argsort(ids, kind="stable")
    ordered = ids[order]
    begins = np.flatnonzero(np.diff(ordered, prepend=ordered[:1] - 1))
    return Rows(ordered[begins], np.add.reduceat(values[order], begins, axis=0) if len(ids) else values)
