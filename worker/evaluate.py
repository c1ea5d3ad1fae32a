"""Evaluation: the metrics of one snapshot of the model over the test set, beside training or after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import tensorflow as tf

from grpc_ps.client import PSClient, PsError
from grpc_ps.models import Array, Dataset, Model
from grpc_ps.worker.data import as_fed
from grpc_ps.worker.device import placed
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
        return {name: total / self._data.examples for name, total in sums.items()}

    def _batches(self) -> Iterator[np.ndarray[Any, np.dtype[np.int64]]]:
        for start in range(0, self._data.examples, _BATCH):
            yield np.arange(start, min(start + _BATCH, self._data.examples))

    def _compute(self, features: tf.Tensor, labels: tf.Tensor) -> dict[str, tf.Tensor]:
        with placed(self._device):
            metrics = self._model.metrics(features, labels)
            return {name: tf.reduce_sum(tf.cast(each, tf.float64)) for name, each in metrics.items()}


class Evaluation:
    """Evaluates the job's model every so many global steps in a thread of its own, which training never waits for.

    One evaluation runs at a time; a step that comes while one runs is passed over. An error ends that evaluation,
    is told, and does not touch training.

    The trainer's thread calls all of this; only `now` runs in the other one as well, and there `_newest` is replaced as
    a whole. `last`, which reads it, has waited for that thread before.

    Args:
        evaluate: as `Evaluator`.
        connect: makes a client to read snapshots with.
        every: global steps; zero means never by itself.
        tell: called from any thread with what happened: "evaluated" and the global step and metrics, or
            "evaluation_failed" and the error.
    """

    def __init__(
        self,
        evaluate: Evaluator,
        connect: Callable[[], PSClient],
        *,
        every: int,
        tell: Callable[[str, Mapping[str, object]], None],
    ) -> None:
        self._evaluate = evaluate
        self._connect = connect
        self._every = every
        self._tell = tell
        self._thread: threading.Thread | None = None
        self._closed = threading.Event()
        self._last = 0
        self._newest: tuple[int, dict[str, float]] = (-1, {})

    def maybe(self, global_step: int) -> None:
        """Starts an evaluation if one is due at this step and none runs."""
        if not self._every or global_step // self._every <= self._last // self._every:
            return
        if self._thread is None or not self._thread.is_alive():
            self._last = global_step
            self._thread = threading.Thread(target=self.now, name="evaluation", daemon=True)
            self._thread.start()

    def now(self) -> dict[str, float]:
        """Evaluates the newest snapshot; nothing if that fails."""
        try:
            with self._connect() as client:
                pulled = client.pull()
            metrics = self._evaluate(pulled.values, stop=self._closed.is_set)
        except PsError as error:
            self._tell("evaluation_failed", {"error": error})
            return {}
        if metrics:
            self._newest = (pulled.global_step, metrics)
            self._tell("evaluated", {"global_step": pulled.global_step, **metrics})
        return metrics

    def last(self, global_step: int, timeout: float) -> dict[str, float]:
        """The metrics of the job's last step: those of the evaluation that runs or ran, if it is of that step."""
        self.finish(timeout)
        step, metrics = self._newest
        return metrics if step == global_step else self.now()

    def finish(self, timeout: float) -> None:
        """Waits for the evaluation that runs, at most `timeout` seconds."""
        if self._thread is not None:
            self._thread.join(timeout)

    def close(self) -> None:
        """Ends the evaluation that runs: a thread inside TensorFlow must not outlive the interpreter."""
        self._closed.set()
        self.finish(_CLOSING)
