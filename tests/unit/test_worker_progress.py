"""Lines about once a second; rates without start-up."""

from __future__ import annotations

import json
from datetime import datetime

import pytest

from grpc_ps.worker.progress import Progress


class Bench:
    """A progress whose clock is moved by hand."""

    def __init__(self) -> None:
        self.time = 100.0
        self.lines: list[str] = []
        moment = datetime(2016, 5, 8, 14, 43, 45)
        self.progress = Progress(self.lines.append, clock=lambda: self.time, now=lambda: moment)

    def steps(self, count: int, seconds: float, *, each: int = 1, examples: int = 10, loss: float = 0.5) -> None:
        """Takes steps of so many seconds, after each of which the job is `each` further."""
        for _ in range(count):
            self.time += seconds
            if self.progress.step(self.progress.global_step + each, "APPLIED", examples):
                self.progress.show(loss, {})


def test_a_line_is_in_the_fields_form_with_both_steps_labelled() -> None:
    bench = Bench()
    bench.time += 3
    bench.progress.begin(1, 40, 1000)
    bench.time += 2
    assert bench.progress.step(44, "APPLIED", 100)
    bench.progress.show(0.25, {"w": 0.1, "b": 0.000001234})
    assert bench.lines == [
        "2016-05-08 14:43:45: worker 1: global_step 44, local_step 1, loss = 0.25, w = 0.1, b = 1.234e-06"
        " (50.0 examples/sec; 2.0000 sec/batch)"
    ]


def test_at_most_a_line_a_second() -> None:
    bench = Bench()
    bench.progress.begin(0, 0, 0)
    bench.steps(1000, 0.01)
    assert 9 <= len(bench.lines) <= 11
    assert bench.lines[5].endswith("(1000.0 examples/sec; 0.0100 sec/batch)")


def test_slow_steps_have_a_line_each() -> None:
    bench = Bench()
    bench.progress.begin(0, 0, 10)
    bench.steps(3, 5.0)
    assert len(bench.lines) == 3


@pytest.mark.parametrize("start", [0, 50])
def test_rates_leave_out_the_first_tenth(start: int) -> None:
    bench = Bench()
    bench.time += 30
    bench.progress.begin(0, start, start + 200)
    bench.steps(10, 2.0, each=2)  # Slow until the job has made 20 of its 200 steps.
    bench.steps(90, 0.1, each=2)
    summary = bench.progress.summary({})
    assert summary["steps_per_second"] == pytest.approx(10)
    assert summary["global_steps_per_second"] == pytest.approx(20)
    assert summary["examples_per_second"] == pytest.approx(100)
    assert summary["wall_seconds"] == pytest.approx(30 + 20 + 9)
    assert (summary["global_step"], summary["local_steps"]) == (start + 200, 100)


def test_rates_without_a_known_target_leave_out_the_first_step() -> None:
    bench = Bench()
    bench.progress.begin(0, 0, 0)
    bench.steps(1, 7.0)
    bench.steps(4, 0.5)
    assert bench.progress.summary({})["steps_per_second"] == pytest.approx(2)


def test_joining_again_goes_on_counting() -> None:
    bench = Bench()
    bench.progress.begin(3, 0, 100)
    bench.steps(10, 1.0)
    bench.time += 50
    bench.progress.begin(2, 30, 100)
    bench.steps(10, 1.0)
    summary = bench.progress.summary({})
    assert (summary["worker"], summary["local_steps"], summary["global_step"]) == (2, 20, 40)
    assert summary["steps_per_second"] == pytest.approx(10 / 60, abs=0.001)


def test_the_summary_has_outcomes_and_accuracy() -> None:
    bench = Bench()
    bench.progress.begin(4, 0, 10)
    for outcome in ("APPLIED", "LATE", "APPLIED", "DONE", None):
        bench.progress.step(3, outcome, 5)
    bench.progress.loss, bench.progress.applied_step = 0.125, 3
    found = json.loads(bench.progress.finish({"accuracy": 0.9, "mse": 0.000012, "other": float("nan")}))
    assert found["outcomes"] == {"APPLIED": 2, "DONE": 1, "LATE": 1}
    assert found["accuracy"] == 0.9
    assert found["metrics"] == {"accuracy": 0.9, "mse": 0.000012, "other": None}
    assert (found["loss"], found["applied_step"]) == (0.125, 3)
    assert found["worker"] == 4
    assert set(found) >= {"global_step", "local_steps", "steps_per_second", "examples_per_second", "wall_seconds"}
    metrics = "accuracy = 0.9, mse = 1.2e-05, other = nan"
    assert f"done: global_step 3, local_step 5, loss = 0.125, evaluation: {metrics} (" in bench.lines[-1]


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), None])
def test_the_summary_is_json_whatever_happened(loss: float | None) -> None:
    bench = Bench()
    bench.progress.loss = loss
    found = json.loads(bench.progress.finish({}), parse_constant=pytest.fail)
    assert found["loss"] is None
    assert (found["accuracy"], found["metrics"]) == (None, {})
    assert found["steps_per_second"] == 0


def test_small_metrics_of_an_evaluation_are_not_shown_as_zero() -> None:
    bench = Bench()
    bench.progress.evaluated(40, {"mse": 0.00001234, "accuracy": 0.97})
    (line,) = bench.lines
    assert line.endswith("worker 0: evaluation at global_step 40: mse = 1.234e-05, accuracy = 0.97")
