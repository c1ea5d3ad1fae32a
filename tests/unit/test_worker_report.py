"""What the lead is told of an evaluation: what it can pass on, and never so that training ends."""

from __future__ import annotations

import logging
import math
import threading
from collections.abc import Iterator
from functools import partial
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from fake_shards import GRADIENTS, IDENTITY, FakeLead, FakeShard, answer, session

from grpc_ps.client.shared.errors import Fenced, PeerLost, PsError, UsageError
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.worker.evaluation import Evaluation, report_evaluation


class RefusingLead(FakeLead):
    def __init__(self, error: PsError) -> None:
        super().__init__()
        self._error = error

    def report(self, request: wire.ReportRequest) -> None:
        super().report(request)
        raise self._error


class FakeClient:
    def __enter__(self) -> FakeClient:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def pull(self, *, averages: bool) -> SimpleNamespace:
        return SimpleNamespace(global_step=1, values={"a": np.zeros(1, np.float32)})


class FakeEvaluator:
    """Of a model without tables."""

    def needed_rows(self) -> dict[str, Any]:
        return {}

    def __call__(self, values: Any, rows: None, *, stop: Any) -> dict[str, float]:
        return {"accuracy": 0.5}


@pytest.fixture
def events(caplog: pytest.LogCaptureFixture) -> Iterator[pytest.LogCaptureFixture]:
    """The worker's events, wherever the commands that other tests ran have sent them."""
    logger = logging.getLogger("grpc_ps.worker")
    caplog.set_level(logging.INFO, "grpc_ps.worker")
    propagated, logger.propagate = logger.propagate, False
    logger.addHandler(caplog.handler)
    yield caplog
    logger.removeHandler(caplog.handler)
    logger.propagate = propagated


@pytest.mark.parametrize(
    "error",
    [
        UsageError("worker 3 is not the one to report an evaluation of step 1"),
        Fenced("worker 3 is no member any more"),
        PeerLost("lead:1: no answer"),
    ],
)
def test_a_report_that_is_refused_does_not_touch_training(error: PsError, events: Any) -> None:
    """As for a worker that lost the lease to evaluate, to another one, while it evaluated."""
    lead = RefusingLead(error)
    one = session(FakeShard("a:1", (7, 0, [answer(1, batch=0), answer(2, 1, 1)])), lead=lead)
    one.begin()
    told: list[Any] = []
    evaluation = Evaluation(
        FakeEvaluator(),  # type: ignore[arg-type]
        FakeClient,  # type: ignore[arg-type]
        evaluated=lambda *what: told.append(what),
        failed=told.append,
    )
    evaluation.begin(1, partial(report_evaluation, one))
    evaluation.maybe(1)
    evaluation.finish(30)
    assert lead.reports == [wire.ReportRequest(id=IDENTITY, global_step=1, metrics={"accuracy": 0.5})]
    assert told == [(1, {"accuracy": 0.5})]
    assert [record.message for record in events.records] == [f'report_failed error="{error}"']
    one.send(GRADIENTS, 1)
    assert one.wait().outcome == "APPLIED"
    # The next evaluation, if the lease comes back, is made and reported like the first one.
    evaluation.maybe(2)
    evaluation.finish(30)
    assert len(lead.reports) == len(told) == 2
    one.leave()


def test_metrics_that_are_not_finite_are_shown_but_not_reported(events: Any) -> None:
    lead = FakeLead()
    one = session(FakeShard("a:1"), lead=lead)
    report_evaluation(one, 40, {"loss": math.nan, "perplexity": math.inf, "accuracy": 0.5, "bound": -math.inf})
    assert lead.reports == [wire.ReportRequest(id=IDENTITY, global_step=40, metrics={"accuracy": 0.5})]
    assert [(record.levelname, record.message) for record in events.records] == [
        ("WARNING", 'not_reported evaluated_step=40 not_finite="bound, loss, perplexity"')
    ]
    report_evaluation(one, 50, {"loss": math.nan})
    assert len(lead.reports) == 1
    assert events.records[-1].message == "not_reported evaluated_step=50 not_finite=loss"


def test_heartbeats_start_no_evaluation_once_the_worker_has_left() -> None:
    lead, asked, answered = FakeLead(), threading.Event(), threading.Event()

    def heartbeat(request: wire.HeartbeatRequest, timeout: float) -> wire.HeartbeatResponse:
        asked.set()
        assert answered.wait(30)
        return wire.HeartbeatResponse(evaluator=True, global_step=7)

    lead.heartbeat = heartbeat  # type: ignore[method-assign]
    one = session(FakeShard("a:1"), lead=lead)
    told: list[int] = []
    one.on_evaluator = told.append
    assert asked.wait(30)
    one.leave()
    answered.set()
    one._heartbeat._thread.join(30)
    assert told == []
