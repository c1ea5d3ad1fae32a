"""What a worker has done so far, in the field's form: a line about once a second, and a summary at the end."""

from __future__ import annotations

import json
import math
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import SupportsFloat

# Seconds from one line to the next.
_INTERVAL = 1.0
# The part of the global steps that is start-up.
_WARM_UP = 0.1


@dataclass(frozen=True)
class Mark:
    """Where the counts stood at a time, in seconds of a monotonic clock."""

    time: float
    global_step: int
    local_steps: int
    examples: int


@dataclass(frozen=True)
class Rates:
    """Speeds between two marks: this worker's steps and examples, and the whole job's steps, per second."""

    steps: float
    examples: float
    global_steps: float

    @classmethod
    def between(cls, first: Mark, last: Mark) -> Rates:
        """Zero if no time has passed."""
        seconds = last.time - first.time
        per_second = 1 / seconds if seconds > 0 else 0.0
        return cls(
            steps=(last.local_steps - first.local_steps) * per_second,
            examples=(last.examples - first.examples) * per_second,
            global_steps=(last.global_step - first.global_step) * per_second,
        )


def _finite(value: float | None) -> float | None:
    # JSON has no NaN.
    return value if value is not None and math.isfinite(value) else None


def metrics_text(metrics: Mapping[str, float]) -> str:
    """Metrics for people, `name = value, name = value`."""
    return ", ".join(f"{name} = {value:.6g}" for name, value in metrics.items())


class Progress:
    """Counts steps and outcomes and prints them.

    Rates of the summary leave out start-up: they begin at a tenth of the global steps from where this worker began.
    The trainer's thread has it to itself; an evaluation's calls `evaluated` only, which prints and changes nothing.

    Args:
        echo: prints a line.
        clock: monotonic, in seconds.
        now: the time of day.
    """

    def __init__(
        self,
        echo: Callable[[str], None],
        *,
        clock: Callable[[], float] = time.monotonic,
        now: Callable[[], datetime] = datetime.now,
    ) -> None:
        self._echo = echo
        self._clock = clock
        self._now = now
        self._started = clock()
        self._warm_at: int | None = None
        self._warm: Mark | None = None
        self._shown: Mark | None = None
        self._next = self._started
        self.worker = 0
        self.global_step = 0
        self.local_steps = 0
        self.examples = 0
        # Of the last push that was applied, and the global step that it made: no other gradient counts.
        self.loss: float | None = None
        self.applied_step: int | None = None
        # Why the job ended before its target, and parameters of the model that the last line shows.
        self.ended = ""
        self.shown: Mapping[str, float] = {}
        self.outcomes: Counter[str] = Counter()

    def begin(self, worker: int, global_step: int, target: int) -> None:
        """The worker has its first parameters; `target` is the job's last global step, zero if not known.

        Called again when the worker joins again: the counts go on.
        """
        self.worker = worker
        self.global_step = global_step
        if self._warm is None:
            self._warm_at = global_step + max(1, math.ceil(_WARM_UP * max(0, target - global_step)))
            self._warm = self._shown = self.mark()

    def mark(self) -> Mark:
        """Where the counts stand now."""
        return Mark(self._clock(), self.global_step, self.local_steps, self.examples)

    def step(self, global_step: int, outcome: str | None, examples: int) -> bool:
        """Counts a step of this worker that has been answered. Returns whether a line is due: then call `show`."""
        self.global_step = global_step
        self.local_steps += 1
        self.examples += examples
        if outcome is not None:
            self.outcomes[outcome] += 1
        if self._warm_at is not None and global_step >= self._warm_at:
            self._warm, self._warm_at = self.mark(), None
        return self._clock() >= self._next

    def show(self, loss: SupportsFloat, shown: Mapping[str, float]) -> None:
        """Prints a line with the loss of the last batch and some parameters."""
        mark = self.mark()
        rates = Rates.between(self._shown or mark, mark)
        self._shown, self._next = mark, mark.time + _INTERVAL
        seconds = 1 / rates.steps if rates.steps > 0 else 0.0
        values = "".join(f", {name} = {value:.4g}" for name, value in shown.items())
        self._line(
            f"global_step {self.global_step}, local_step {self.local_steps}, loss = {float(loss):.4g}{values}"
            f" ({rates.examples:.1f} examples/sec; {seconds:.4f} sec/batch)"
        )

    def _line(self, text: str) -> None:
        self._echo(f"{self._now():%Y-%m-%d %H:%M:%S}: worker {self.worker}: {text}")

    def evaluated(self, global_step: int, metrics: Mapping[str, float]) -> None:
        """Prints the result of an evaluation."""
        self._line(f"evaluation at global_step {global_step}: {metrics_text(metrics)}")

    def summary(self, metrics: Mapping[str, float]) -> dict[str, object]:
        """The figures of the whole run; `metrics` are the last evaluation's. Loss is the last applied push's."""
        end = self.mark()
        rates = Rates.between(self._warm or end, end)
        return {
            "worker": self.worker,
            "global_step": self.global_step,
            "local_steps": self.local_steps,
            "loss": _finite(self.loss),
            "applied_step": self.applied_step,
            "accuracy": _finite(metrics.get("accuracy")),
            "metrics": {name: _finite(value) for name, value in metrics.items()},
            "steps_per_second": round(rates.steps, 3),
            "examples_per_second": round(rates.examples, 3),
            "global_steps_per_second": round(rates.global_steps, 3),
            "outcomes": dict(sorted(self.outcomes.items())),
            "wall_seconds": round(end.time - self._started, 3),
            "reason": self.ended,
        }

    def finish(self, metrics: Mapping[str, float]) -> str:
        """Prints the summary for people, and returns it as one line of JSON."""
        summary = self.summary(metrics)
        found = f", evaluation: {metrics_text(metrics)}" if metrics else ""
        loss = "none" if self.loss is None else f"{self.loss:.4g}"
        outcomes = ", ".join(f"{count} {name}" for name, count in sorted(self.outcomes.items())) or "no pushes"
        shown = "".join(f", {name} = {value:.4g}" for name, value in self.shown.items())
        # Whoever restarts a worker of a job that is over must see why it has nothing to do.
        how = self.ended or ("done" if self.local_steps else f"target step {self.global_step} already reached")
        self._line(
            f"{how}: global_step {self.global_step}, local_step {self.local_steps}, loss = {loss}{shown}{found}"
            f" ({summary['examples_per_second']:.1f} examples/sec; {summary['steps_per_second']:.1f} steps/sec;"
            f" {outcomes}; {summary['wall_seconds']:.1f} s)"
        )
        return json.dumps(summary)
