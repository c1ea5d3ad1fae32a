"""A model's tables: what they are to the cluster, which rows a batch needs, and how a step looks them up."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import tensorflow as tf

from grpc_ps.client import ParameterSpec
from grpc_ps.client.shared.errors import DataError, UsageError
from grpc_ps.client.shared.rows import Ids, distinct
from grpc_ps.client.shared.tables import TableSpec
from grpc_ps.models import Array, Table
from grpc_ps.worker.failures import USERS_OWN, describe_error
from grpc_ps.worker.variables import parameter_specs


def tables_of(model: Any) -> Mapping[str, Table]:
    """The model's tables by name; none if it is not one with tables."""
    tables: Mapping[str, Table] = getattr(model, "tables", {})
    return tables


def model_specs(model: Any) -> tuple[ParameterSpec, ...]:
    """Describes a model's variables and tables to the cluster.

    Raises:
        UsageError: one cannot be shared, or a name is used twice.
    """
    tables = tables_of(model)
    variables = parameter_specs(model.variables) if model.variables or not tables else ()
    if twice := sorted({spec.name for spec in variables} & tables.keys()):
        raise UsageError(f"the model cannot be shared: a variable and a table are named {twice[0]!r}")
    return (*variables, *(_spec(name, table) for name, table in tables.items()))


def dense_specs(specs: Sequence[ParameterSpec]) -> tuple[ParameterSpec, ...]:
    """Those of the parameters that are no tables: what files of first values have."""
    return tuple(spec for spec in specs if spec.table is None)


def _spec(name: str, table: Table) -> ParameterSpec:
    try:
        rules = TableSpec(
            spread=float(table.spread), lazy=table.lazy, push_rows=table.push_rows, capacity=table.capacity
        )
        return ParameterSpec(name=name, shape=(table.rows, table.dim), dtype="float32", table=rules)
    except ValueError as error:
        raise UsageError(f"the model cannot be shared: table {name!r}: {error}") from None


def needed_rows(model: Any, features: Array) -> dict[str, Ids]:
    """The ids of each table that a batch needs: each once, rising.

    Raises:
        DataError: the model cannot tell, or an id is not in its table.
    """
    try:
        asked = {name: np.asarray(ids) for name, ids in model.table_ids(features).items()}
    except USERS_OWN as error:
        raise DataError(f"table_ids: {describe_error(error)}") from error
    if asked.keys() != model.tables.keys():
        raise DataError(f"table_ids: gives ids for {sorted(asked)}, the model has the tables {sorted(model.tables)}")
    return {name: _distinct(name, model.tables[name].rows, ids) for name, ids in asked.items()}


def _distinct(name: str, rows: int, ids: Array) -> Ids:
    if ids.size and not np.issubdtype(ids.dtype, np.integer):
        raise DataError(f"table {name}: ids are {ids.dtype}, not whole numbers")
    found = distinct(ids)
    if found.size and not (found[0] >= 0 and found[-1] < rows):
        wrong = found[0] if found[0] < 0 else found[-1]
        raise DataError(f"table {name}: has no row {wrong}, only 0 to {rows - 1}")
    return found


class StepRows:
    """The rows that a batch needs of one table, in a step: `models.Lookup`.

    Attributes:
        ids: each once, rising, shape [n]; `values` are their rows, shape [n, dim].
    """

    def __init__(self, name: str, ids: tf.Tensor, values: tf.Tensor) -> None:
        self.ids = ids
        self.values = values
        self._name = name

    def lookup(self, ids: tf.Tensor) -> tf.Tensor:
        """See `models.Lookup`."""
        wanted = tf.cast(ids, tf.int64)
        places = tf.reshape(tf.searchsorted(self.ids, tf.reshape(wanted, [-1])), tf.shape(wanted))
        found = tf.gather(self.ids, tf.minimum(places, tf.size(self.ids) - 1))
        text = f"a lookup of ids that table_ids does not give for table {self._name}"
        # The operation itself: `tf.debugging` puts a branch around it.
        given = tf.raw_ops.Assert(condition=tf.reduce_all(tf.equal(found, wanted)), data=[text])
        with tf.control_dependencies([given]):
            return tf.gather(self.values, places)
