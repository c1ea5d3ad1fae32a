"""Evaluation: the metrics of one snapshot of the model over the test set, beside training or after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from grpc_ps.client import PSClient, PsError
from grpc_ps.models import Array, Dataset, Model
from grpc_ps.worker.device import placed
from grpc_ps.worker.failures import describe_error
from grpc_ps.worker.slots import as_fed
from grpc_ps.worker.variables import wire_name

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

    def __call__(self, values: Mapping[str, Array], *, stop: Callable[[], bool] = lambda: False) -> dict[str, float]:
        """Means over all examples by metric; nothing if `stop` said so on the way."""
        for variable in self._model.variables:
            variable.assign(values[wire_name(variable)])
        sums: dict[str, float] = {}
        for indices in self._batches():
            if stop():
                return {}
            features, labels = as_fed(self._data.take(indices))
            found = self._metrics(tf.convert_to_tensor(features), tf.convert_to_tensor(labels))
            for name, total in found.items():
                sums[name] = sums.get(name, 0.0) + float(total)
        return {name: total / self.examples for name, total in sums.items()}

    @property
    def examples(self) -> int:
        """Number of examples that are evaluated on."""
        return self._data.examples

    def names(self) -> list[str]:
        """The names of the metrics, which the model has to be run for, on one example."""
        features, labels = as_fed(self._data.take(np.arange(1)))
        return sorted(self._metrics(tf.convert_to_tensor(features), tf.convert_to_tensor(labels)))

    def _batches(self) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
        for start in range(0, self._data.examples, _BATCH):
            yield np.arange(start, min(start + _BATCH, self._data.examples))

    def _compute(self, features: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        with placed(self._device):
            metrics = self._model.metrics(features, labels)
            return {name: tf.reduce_sum(tf.cast(each, tf.float64)) for name, each in metrics.items()}


Tell = Callable[[str, Mapping[str, object]], None]
Report = Callable[[int, Mapping[str, float]], None]


class Evaluation:
    """Evaluates the job's model every so many global steps in a thread of its own, which training never waits for.

    One evaluation runs at a time. When steps at which one is due have passed while it ran, the next begins at once, on
    the newest values. An error ends that evaluation, is told, and does not touch training.

    `maybe` may be called from any thread; the rest is the trainer's. `_lock` guards the three fields that say what is
    due; `_newest` is replaced as a whole, and `last`, which reads it, has waited for the other thread before.

    Args:
        evaluate: as `Evaluator`.
        connect: makes a client to read snapshots with.
        tell: called from any thread with what happened: "evaluated" and the global step and metrics, or
            "evaluation_failed" and the error.
    """

    def __init__(self, evaluate: Evaluator, connect: Callable[[], PSClient], *, tell: Tell) -> None:
        self._evaluate = evaluate
        self._connect = connect
        self._tell = tell
        self._every = 0
        self._report: Report = lambda global_step, metrics: None
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
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
        """Starts an evaluation if one is due at this step and none runs."""
        if not self._every:
            return
        with self._lock:
            self._seen = max(self._seen, global_step)
            if self._running or not self._take_due():
                return
            self._running = True
            # Within the lock: whoever waits for the end of an evaluation must find its thread.
            self._thread = threading.Thread(target=self._run, name="evaluation", daemon=True)
            self._thread.start()

    def _take_due(self) -> bool:
        """Whether an evaluation is due, which then counts as done. With the lock."""
        due = self._seen // self._every > self._last // self._every
        self._last = self._seen if due else self._last
        return due

    def _run(self) -> None:
        while True:
            self.now()
            with self._lock:
                self._running = not self._closed.is_set() and self._take_due()
                if not self._running:
                    return

    def now(self) -> dict[str, float]:
        """Evaluates the newest snapshot; nothing if that fails."""
        try:
            with self._connect() as client:
                pulled = client.pull()
            metrics = self._evaluate(pulled.values, stop=self._closed.is_set)
            if metrics:
                self._newest = (pulled.global_step, metrics)
                self._tell("evaluated", {"global_step": pulled.global_step, **metrics})
                self._report(pulled.global_step, metrics)
        except PsError as error:
            self._tell("evaluation_failed", {"error": error})
            return {}
        except Exception as error:  # Whatever a user's model or data raises.
            self._tell("evaluation_failed", {"error": describe_error(error)})
            return {}
        with self._lock:
            self._last = max(self._last, pulled.global_step)
        return metrics

    def last(self, global_step: int, timeout: float) -> dict[str, float]:
        """The metrics of the job's last step: those of the evaluation that runs or ran, if it is of that step."""
        self.finish(timeout)
        step, metrics = self._newest
        if step == global_step:
            return metrics
        return {} if self._running else self.now()

    def finish(self, timeout: float) -> None:
        """Waits for the evaluation that runs, at most `timeout` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    def close(self) -> None:
        """Ends the evaluation that runs: a thread inside TensorFlow must not outlive the interpreter."""
        self._closed.set()
        self.finish(_CLOSING)
