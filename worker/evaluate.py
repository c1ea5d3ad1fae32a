"""Evaluation: the metrics of one snapshot of the model over the test set, beside training or after it."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import tensorflow as tf

from grpc_ps.client import PSClient, PsError, TrainingSession
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.logs import event
from grpc_ps.client.shared.rows import Ids
from grpc_ps.models import Array, BatchMetrics, Dataset, Model
from grpc_ps.worker.device import placed
from grpc_ps.worker.failures import describe_error, models_own_errors
from grpc_ps.worker.slots import as_fed
from grpc_ps.worker.tables import StepRows, needed_rows, tables_of
from grpc_ps.worker.variables import wire_name

_LOGGER = logging.getLogger("grpc_ps.worker")
# Examples at a time.
_BATCH = 1000
# Seconds for an evaluation to notice, after its batch, that it is not wanted any more.
_CLOSING = 5.0


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


Report = Callable[[int, Mapping[str, float]], None]


class Evaluation:
    """Evaluates the job's model every so many global steps in a thread of its own, which training never waits for.

    Where the job keeps moving averages of its parameters, these are evaluated.

    One evaluation runs at a time, whoever starts it: all use the evaluator's variables. When steps at which one is due
    have passed while it ran, the next begins at once, on the newest values. An error ends that evaluation, is told, and
    does not touch training.

    `maybe` may be called from any thread; the rest is the trainer's. `_free` guards all that is written after
    `__init__` but what `begin` sets, and is notified when an evaluation has ended.

    Args:
        evaluate: as `Evaluator`.
        connect: makes a client to read snapshots with.
        evaluated: called from any thread with the global step and the metrics that were found.
        failed: called from any thread with the error, for people.
    """

    def __init__(
        self,
        evaluate: Evaluator,
        connect: Callable[[], PSClient],
        *,
        evaluated: Report,
        failed: Callable[[object], None],
    ) -> None:
        self._evaluate = evaluate
        self._connect = connect
        self._evaluated = evaluated
        self._failed = failed
        self._every = 0
        self._report: Report = lambda global_step, metrics: None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._free = threading.Condition()
        self._running = False
        self._seen = self._last = 0
        self._newest: tuple[int, dict[str, float]] = (-1, {})

    def begin(self, every: int, report: Report) -> None:
        """Takes what a session has: global steps from one evaluation to the next, zero for none, and who is told.

        `report` must not raise.
        """
        self._every = every
        self._report = report

    def maybe(self, global_step: int) -> None:
        """Starts an evaluation if one is due at this step and none runs; never after `close`."""
        if not self._every:
            return
        with self._free:
            self._seen = max(self._seen, global_step)
            if self._claim_due():
                # Within the lock: whoever waits for the end of an evaluation must find its thread.
                self._thread = threading.Thread(target=self._run, name="evaluation", daemon=True)
                self._thread.start()

    def _claim_due(self) -> bool:
        """Claims the evaluator if an evaluation is due, which then counts as done. With the lock."""
        if self._seen // self._every <= self._last // self._every or not self._claim():
            return False
        self._last = self._seen
        return True

    def _claim(self) -> bool:
        """Makes the caller the one who evaluates, unless there is one or must not be any more. With the lock."""
        if self._running or self._closed.is_set():
            return False
        self._running = True
        return True

    def _run(self) -> None:
        due = True
        while due:
            self._evaluate_newest()
            with self._free:
                due = self._claim_due()

    def _evaluate_newest(self) -> dict[str, float]:
        """Evaluates the newest snapshot; nothing if that fails. The caller has claimed the evaluator and loses it."""
        try:
            return self._found()
        except PsError as error:
            self._failed(error)
        except Exception as error:  # Whatever a user's model or data raises.
            self._failed(describe_error(error))
        finally:
            with self._free:
                self._running = False
                self._free.notify_all()
        return {}

    def _found(self) -> dict[str, float]:
        needed = self._evaluate.needed_rows()
        with self._connect() as client:
            pulled = client.pull(averages=True, rows=needed) if needed else client.pull(averages=True)
        rows = pulled.rows if needed else None
        metrics = self._evaluate(pulled.values, rows, stop=self._closed.is_set)
        if not metrics:
            return {}
        with self._free:
            self._newest = (pulled.global_step, metrics)
            self._last = max(self._last, pulled.global_step)
        self._evaluated(pulled.global_step, metrics)
        self._report(pulled.global_step, metrics)
        return metrics

    def last(self, global_step: int, timeout: float) -> dict[str, float]:
        """The metrics of the job's last step: those of the evaluation that runs or ran, if it is of that step.

        Otherwise evaluates. Nothing if that fails, or if another evaluation takes longer than `timeout` seconds.
        """
        with self._free:
            self._free.wait_for(lambda: not self._running, timeout)
            step, metrics = self._newest
            if step == global_step:
                return metrics
            if not self._claim():
                return {}
        return self._evaluate_newest()

    def finish(self, timeout: float) -> None:
        """Waits for the evaluation that runs in its own thread, at most `timeout` seconds."""
        with self._free:
            thread = self._thread
        if thread is not None:
            thread.join(timeout)

    def close(self) -> None:
        """Ends the evaluation that runs: a thread inside TensorFlow must not outlive the interpreter."""
        with self._free:
            self._closed.set()
        self.finish(_CLOSING)


def report_evaluation(session: TrainingSession, global_step: int, metrics: Mapping[str, float]) -> None:
    """Tells the lead the metrics that are finite: whoever reads a cluster's state as JSON could not read the others.

    Never ends training. A report that does not get through is not repeated, since the next one may; one of a worker
    that has lost the lease to evaluate is refused, and the new holder evaluates.
    """
    finite = {name: value for name, value in metrics.items() if math.isfinite(value)}
    if left_out := ", ".join(sorted(metrics.keys() - finite.keys())):
        event(_LOGGER, "not_reported", logging.WARNING, evaluated_step=global_step, not_finite=left_out)
    if not finite:
        return
    try:
        session.report(global_step, finite)
    except PsError as error:
        event(_LOGGER, "report_failed", error=error)
