"""What happens beside the steps of a `MonitoredSession`: hooks, by the names that TensorFlow 1.x gave them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.summary_flags import SUMMARY_EVERY
from grpc_ps.worker.config import Value

if TYPE_CHECKING:
    from grpc_ps.worker.monitored import MonitoredSession

Metrics = Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """One step of a session.

    Attributes:
        global_step: updates applied to the model whose parameters are there now.
        local_step: steps that this session has computed.
        loss: the mean over the batch, NaN where nothing was computed since the job was over.
        outcome: APPLIED, LATE (the round was closed already), NON_FINITE or DONE; None as `loss` is NaN.
        values: of the variables that the model shows, each of one element.
        done: whether the job is over.
    """

    global_step: int
    local_step: int
    loss: float
    outcome: str | None
    values: Mapping[str, float] = field(default_factory=dict)
    done: bool = False


class Hook:
    """Told what a session does, in the session's thread; each method does nothing unless it is overridden."""

    def settings(self) -> Mapping[str, Value]:
        """Settings of the job that this hook insists on, by the names of `job.proto`."""
        return {}

    def begin(self, session: MonitoredSession) -> None:
        """The session has joined and has the first parameters."""

    def before_step(self, session: MonitoredSession) -> None:
        """A step is about to be computed."""

    def after_step(self, session: MonitoredSession, result: StepResult) -> None:
        """A step was answered."""

    def end(self, session: MonitoredSession) -> None:
        """The session is about to leave the job; not called where an exception ends it."""


class Every:
    """When something is due: so many global steps, or seconds, after the last time.

    Raises:
        UsageError: not exactly one of them is given, or it is not above 0.
    """

    def __init__(self, steps: int | None, secs: float | None, *, clock: Callable[[], float] = time.monotonic) -> None:
        if (steps is None) == (secs is None) or (steps or secs or 0) <= 0:
            raise UsageError(f"every_steps {steps} and every_secs {secs}: give one of them, above 0")
        self._steps = steps
        self._secs = secs
        self._clock = clock
        self._last: float = 0

    def begin(self, global_step: int) -> None:
        """Counts from here."""
        self._last = self._clock() if self._steps is None else global_step

    def due(self, global_step: int) -> bool:
        """Whether it is due at this step, which then is the last time. Steps are counted by their multiples."""
        if self._steps is not None:
            if global_step // self._steps <= self._last // self._steps:
                return False
            self._last = global_step
            return True
        assert self._secs is not None
        now = self._clock()
        if now - self._last < self._secs:
            return False
        self._last = now
        return True


class StopAtStepHook(Hook):
    """Ends the job at a global step: its `steps`. All its processes then end."""

    def __init__(self, last_step: int) -> None:
        if last_step < 1:
            raise UsageError(f"last_step {last_step}: must be at least 1")
        self._last_step = last_step

    def settings(self) -> Mapping[str, Value]:
        """See `Hook`."""
        return {"steps": self._last_step}


class _Repeated(Hook):
    def __init__(self, every_steps: int | None, every_secs: float | None) -> None:
        self._every = Every(every_steps, every_secs)

    def begin(self, session: MonitoredSession) -> None:
        """See `Hook`."""
        self._every.begin(session.global_step)

    def after_step(self, session: MonitoredSession, result: StepResult) -> None:
        """See `Hook`."""
        if self._every.due(result.global_step):
            self.act(session, result)

    def act(self, session: MonitoredSession, result: StepResult) -> None:
        """What is to be done when it is due."""


class CheckpointSaverHook(_Repeated):
    """Has the shards save the job, and waits until that is on disk. They need a `--checkpoint-dir`.

    What they save by themselves (`--checkpoint-steps`) costs a session no wait.
    """

    def __init__(self, *, every_steps: int | None = None, every_secs: float | None = None) -> None:
        super().__init__(every_steps, every_secs)

    def act(self, session: MonitoredSession, result: StepResult) -> None:
        """See `_Repeated`."""
        # The end saves by itself, and the lead may have gone.
        if not result.done:
            session.client.checkpoint()


class LoggingHook(_Repeated):
    """Says where training is: step, loss and shown variables, by a line on stdout or by `say`."""

    def __init__(
        self,
        *,
        every_steps: int | None = None,
        every_secs: float | None = None,
        say: Callable[[StepResult], object] | None = None,
    ) -> None:
        super().__init__(every_steps, every_secs)
        self._say = say or _print

    def act(self, session: MonitoredSession, result: StepResult) -> None:
        """See `_Repeated`."""
        self._say(result)


def _print(result: StepResult) -> None:
    # Not by the log, whose lines of this kind a program that has not set it up never sees.
    figures = {"loss": result.loss, **result.values}
    print(f"global_step {result.global_step}:", ", ".join(f"{name} {value:g}" for name, value in figures.items()))


class SummarySaverHook(Hook):
    """Writes what TensorBoard shows of the job, as the worker's `--logdir` and `--summary-every` do."""

    def __init__(self, logdir: str | Path, *, every_steps: int = SUMMARY_EVERY) -> None:
        if every_steps < 1:
            raise UsageError(f"every_steps {every_steps}: must be at least 1")
        self.logdir = Path(logdir)
        self.every_steps = every_steps


class EvaluationHook(Hook):
    """Has the job evaluate its model every so many global steps, on test data, beside the training.

    One worker of the job does that at a time, whichever holds the lease. `found` is told what this session's process
    has found: the global step and the metrics, in another thread.
    """

    def __init__(
        self, every_steps: int, *, found: Callable[[int, Metrics], object] = lambda step, metrics: None
    ) -> None:
        if every_steps < 1:
            raise UsageError(f"every_steps {every_steps}: must be at least 1")
        self._every_steps = every_steps
        self.found = found

    def settings(self) -> Mapping[str, Value]:
        """See `Hook`."""
        return {"eval_every": self._every_steps}
