"""When the model is evaluated: beside training, by the one worker that has the lease to, and after it."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Callable, Mapping

from grpc_ps.client import PSClient, PsError, TrainingSession
from grpc_ps.client.shared.logs import event
from grpc_ps.worker.evaluator import Evaluator
from grpc_ps.worker.failures import USERS_OWN, describe_error

_LOGGER = logging.getLogger("grpc_ps.worker")
# Seconds for an evaluation to notice, after its batch, that it is not wanted any more.
_CLOSING = 5.0

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
        except USERS_OWN as error:
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
