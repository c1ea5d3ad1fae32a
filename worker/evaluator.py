"""Evaluation: the metrics of one snapshot of the model over the test set."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.rows import Ids
from grpc_ps.models import Array, BatchMetrics, Dataset, Model
from grpc_ps.worker.device import placed
from grpc_ps.worker.failures import models_own_errors
from grpc_ps.worker.slots import as_fed
from grpc_ps.worker.tables import StepRows, needed_rows, tables_of
from grpc_ps.worker.variables import wire_name

# Examples at a time.
_BATCH = 1000


class Evaluator:
    """Computes the metrics of values that are given to it, in variables of its own: training goes on in others.

    Args:
        model: made for this alone.
        data: what is evaluated on.
        device: where.
    """

    def __init__(self, model: Model, data: Dataset, *, device: str | None = None) -> None:
        self._model = model
        self._data = data
        self._device = device
        self._metrics: Any = tf.function(self._compute, reduce_retracing=True)
        self._accumulator: BatchMetrics | None = model if isinstance(model, BatchMetrics) else None
        self._names: list[str] | None = None
        self._tables = sorted(tables_of(model))
        self._ids: dict[str, Ids] | None = None
        self._rows: Mapping[str, Array] = {}

    def __call__(
        self,
        values: Mapping[str, Array],
        rows: Mapping[str, Array] | None = None,
        *,
        stop: Callable[[], bool] = lambda: False,
    ) -> dict[str, float]:
        """Means by metric, or what the model's own find; nothing if `stop` said so. `rows` are of `needed_rows`."""
        self._rows = rows or {}
        for variable in self._model.variables:
            variable.assign(values[wire_name(variable)])
        if self._accumulator is not None:
            self._accumulator.reset_metrics()
        sums: dict[str, float] = {}
        for indices in self._batches():
            if stop():
                return {}
            for name, total in self._of_batch(*as_fed(self._data.take(indices))).items():
                before = 0.0 if self._accumulator is not None else sums.get(name, 0.0)
                sums[name] = before + float(total)
        return sums if self._accumulator is not None else {name: sums[name] / self.examples for name in sums}

    @property
    def examples(self) -> int:
        """Number of examples that are evaluated on."""
        return self._data.examples

    def names(self) -> list[str]:
        """The names of the metrics, which the model has to be run for, on one example: once, before it evaluates."""
        if self._names is None:
            self._rows = {}
            self._names = sorted(self._of_batch(*as_fed(self._data.take(np.arange(1)))))
        return self._names

    def needed_rows(self) -> dict[str, Ids]:
        """The ids of the rows that the examples look up, by table. Worked out once."""
        if not self._tables:
            return {}
        if self._ids is None:
            batches = [needed_rows(self._model, as_fed(self._data.take(some))[0]) for some in self._batches()]
            every = {name: [batch[name] for batch in batches] for name in self._tables}
            self._ids = {name: np.unique(np.concatenate(ids)) for name, ids in every.items()}
        return self._ids

    def _of_batch(self, features: Array, labels: Array) -> Any:
        tensors = tf.convert_to_tensor(features), tf.convert_to_tensor(labels)
        if not self._tables:
            return self._metrics(*tensors)
        ids = needed_rows(self._model, features)
        rows = [self._rows_of(name, ids[name]) for name in self._tables]
        return self._metrics(*tensors, [ids[name] for name in self._tables], rows)

    def _rows_of(self, name: str, ids: Ids) -> Array:
        """Those rows of what was read; zeros where nothing was, to find out names."""
        if name not in self._rows:
            return np.zeros((len(ids), tables_of(self._model)[name].dim), np.float32)
        return self._rows[name][np.searchsorted(self.needed_rows()[name], ids)]

    def _batches(self) -> Iterator[npt.NDArray[np.int64]]:
        for start in range(0, self._data.examples, _BATCH):
            yield np.arange(start, min(start + _BATCH, self._data.examples))

    def _compute(self, features: tf.Tensor, labels: tf.Tensor, *of_tables: Any) -> dict[str, tf.Tensor]:
        with placed(self._device):
            if self._accumulator is not None:
                return dict(self._accumulator.update_metrics(features, labels))
            model: Any = self._model
            lookups = [
                {name: StepRows(name, *pair) for name, *pair in zip(self._tables, *of_tables, strict=True)}
                for _ in of_tables[:1]
            ]
            metrics = model.metrics(features, labels, *lookups)
            return {name: tf.reduce_sum(tf.cast(each, tf.float64)) for name, each in metrics.items()}


def check_until(metric: str | None, evaluator: Evaluator | None, *, model: str) -> None:
    """A job that ends by a metric which there is not would never end. `model` is what --model says.

    Raises:
        UsageError: there is no such metric, no test set, or the model's metrics cannot be computed.
    """
    if metric is None:
        return
    if evaluator is None:
        raise UsageError(f"--until: there is no test set to find {metric} on; choose other data, or set --steps")
    with models_own_errors(model):
        names = evaluator.names()
    if metric not in names:
        raise UsageError(f"--until: the model has no metric {metric}; it has: {', '.join(names) or 'none'}")
