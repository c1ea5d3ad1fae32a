"""Workers without a model: threads that push what a function says, through the client library."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grpc_ps.client import PSClient, Reply
from grpc_ps.client.shared.blocks import ParameterSpec

DEADLINE = 60.0

# What a worker pushes: (worker index, batch number, parameters) -> (gradients, examples).
Gradient = Callable[[int, int, Mapping[str, np.ndarray]], tuple[Mapping[str, np.ndarray], int]]


@dataclass
class Outcome:
    """What became of one light worker."""

    worker: int
    outcomes: Counter[str] = field(default_factory=Counter)
    global_step: int = 0
    first_step: int | None = None
    parameters: dict[str, np.ndarray] = field(default_factory=dict)
    last: Reply | None = None


def scalar(name: str = "w") -> ParameterSpec:
    return ParameterSpec(name=name, shape=(), dtype="float32")


def constant(value: float, examples: int = 1) -> Gradient:
    """Every gradient is that number in every element."""

    def gradient(worker: int, batch: int, parameters: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        return {name: np.full_like(array, value) for name, array in parameters.items()}, examples

    return gradient


def run_worker(
    addresses: str,
    parameters: Sequence[ParameterSpec],
    gradient: Gradient,
    *,
    initial: Mapping[str, np.ndarray] | None = None,
    pushes: int | None = None,
    timeout: float = 20.0,
    **join: Any,
) -> Outcome:
    """Joins, opens if it is the first, and pushes until the job is done (or `pushes` were made), then leaves."""
    initial = initial or {spec.name: np.zeros(spec.shape, spec.dtype) for spec in parameters}
    with PSClient(addresses, timeout=timeout) as client:
        session = client.join("test", parameters, **join)
        outcome = Outcome(session.worker)
        if session.opener:
            session.open(initial)
        reply = session.begin()
        outcome.first_step = reply.global_step
        while not reply.done and (pushes is None or outcome.outcomes.total() < pushes):
            assert reply.batch is not None
            gradients, examples = gradient(session.worker, reply.batch, session.parameters)
            reply = client.push(gradients, examples)
            outcome.outcomes[str(reply.outcome)] += 1
        outcome.global_step, outcome.last = reply.global_step, reply
        # The answer that ends a job has no parameters: what the model has become is read, before leaving.
        values = client.pull().values if reply.done else session.parameters
        outcome.parameters = {name: array.copy() for name, array in values.items()}
        return outcome


def run_workers(count: int, work: Callable[[int], Outcome]) -> list[Outcome]:
    """Runs `work(i)` in a thread each; raises what one of them raised."""
    results: list[Outcome | BaseException | None] = [None] * count

    def run(number: int) -> None:
        try:
            results[number] = work(number)
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE)
    outcomes = []
    for result in results:
        if isinstance(result, BaseException):
            raise result
        assert result is not None, "a worker did not end"
        outcomes.append(result)
    return outcomes


def final_values(addresses: str) -> tuple[int, dict[str, np.ndarray]]:
    """Reads the cluster's values."""
    with PSClient(addresses, timeout=20.0) as client:
        pulled = client.pull()
        return pulled.global_step, pulled.values
