"""Workers without a model: threads that push what a function says, through the client library."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue
from typing import TYPE_CHECKING, Any

import numpy as np

from grpc_ps.client import PSClient, Reply, TrainingSession
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import Fenced, PeerLost, PeerUnreachable, RolledBack
from grpc_ps.client.shared.faults import Faults
from grpc_ps.client.shared.security import Security

if TYPE_CHECKING:  # It needs TensorFlow, which small processes do without.
    from local_cluster import LocalCluster

DEADLINE = 100.0

# What a worker pushes: (worker index, batch number, parameters) -> (gradients, examples).
Gradient = Callable[[int, int, Mapping[str, np.ndarray]], tuple[Mapping[str, np.ndarray], int]]


@dataclass
class Outcome:
    """What became of one light worker.

    Attributes:
        lives: how often it joined; `worker` and `first_step` are of the last life.
        sent: pushes that it made; `outcomes` counts their outcomes, `order` has them one by one.
        repeated: answers that were given before.
    """

    worker: int = -1
    lives: int = 0
    sent: int = 0
    repeated: int = 0
    order: list[str] = field(default_factory=list)
    outcomes: Counter[str] = field(default_factory=Counter)
    global_step: int = 0
    first_step: int | None = None
    parameters: dict[str, np.ndarray] = field(default_factory=dict)
    last: Reply | None = None

    def begin(self, session: TrainingSession) -> None:
        """Notes that another life begins."""
        self.worker = session.worker
        self.lives += 1


def scalar(name: str = "w") -> ParameterSpec:
    return ParameterSpec(name=name, shape=(), dtype="float32")


def constant(value: float, examples: int = 1) -> Gradient:
    """Every gradient is that number in every element."""

    def gradient(worker: int, batch: int, parameters: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        return {name: np.full_like(array, value) for name, array in parameters.items()}, examples

    return gradient


class Crash(Exception):
    """Raised by a gradient function: the worker is gone from then on, without a word to anybody."""


def run_worker(
    addresses: str,
    parameters: Sequence[ParameterSpec],
    gradient: Gradient,
    *,
    initial: Mapping[str, np.ndarray] | None = None,
    pushes: int | None = None,
    timeout: float = 20.0,
    rejoin: bool = False,
    overlap: bool = False,
    security: Security | None = None,
    faults: Faults | None = None,
    **join: Any,
) -> Outcome:
    """Joins, opens if it is the first, and pushes until the job is done (or `pushes` were made), then leaves.

    With `rejoin` a worker joins again as a real one does, when its lease has ended or the job has gone back. With
    `overlap` it computes the next gradient while a push is exchanged.
    """
    initial = initial or {spec.name: np.zeros(spec.shape, spec.dtype) for spec in parameters}
    outcome = Outcome()
    with PSClient(addresses, timeout=timeout, security=security, faults=faults) as client:
        while True:
            session = client.join("test", parameters, **join)
            outcome.begin(session)
            try:
                if session.opener:
                    session.open(initial)
                _push_on(client, session, Ahead(session, gradient, overlap), outcome, pushes)
            except Crash:
                abandon(session)
            except (Fenced, RolledBack):
                if not rejoin:
                    raise
                # Joining again must not open another job.
                join["run"] = session.run
                continue
            return outcome


class Ahead:
    """Computes gradients when they are due, or one ahead, as `worker.gradients` does."""

    def __init__(self, session: TrainingSession, gradient: Gradient, overlap: bool) -> None:
        self._session = session
        self._gradient = gradient
        self._overlap = overlap
        self._ahead: tuple[int, tuple[Mapping[str, np.ndarray], int], int] | None = None

    def push(self, reply: Reply) -> Reply:
        """Pushes the gradient of the batch of that reply."""
        session, ahead = self._session, self._ahead
        assert reply.batch is not None
        if ahead is None or ahead[0] != reply.batch:
            ahead = reply.batch, self._compute(reply.batch), reply.global_step
        _, (gradients, examples), step = ahead
        session.send(gradients, examples, base_step=step)
        self._ahead = None
        if self._overlap and reply.hint is not None:
            self._ahead = reply.hint, self._compute(reply.hint), reply.global_step
        reply = session.wait()
        if reply.outcome == "LATE":
            self._overlap, self._ahead = False, None
        return reply

    def _compute(self, batch: int) -> tuple[Mapping[str, np.ndarray], int]:
        return self._gradient(self._session.worker, batch, self._session.parameters)


def _push_on(client: PSClient, session: TrainingSession, ahead: Ahead, outcome: Outcome, pushes: int | None) -> None:
    reply = session.begin()
    outcome.first_step = reply.global_step
    while not reply.done and (pushes is None or outcome.outcomes.total() < pushes):
        outcome.sent += 1
        reply = ahead.push(reply)
        outcome.outcomes[str(reply.outcome)] += 1
        outcome.order.append(str(reply.outcome))
        outcome.repeated += reply.repeated
    outcome.global_step, outcome.last = reply.global_step, reply
    # The answer that ends a job has no parameters: what the model has become is read, before leaving. Of a job that
    # has failed there may be nothing to read.
    values = _read(client) if reply.done and not reply.exit_code else session.parameters
    outcome.parameters = {name: array.copy() for name, array in values.items()}


def _read(client: PSClient) -> Mapping[str, np.ndarray]:
    """The model, read again where a test has just cut the link."""
    for _ in range(5):
        try:
            return client.pull().values
        except (PeerLost, PeerUnreachable) as error:
            last = error
    raise last


def gathered(cluster: LocalCluster, count: int, gradient: Gradient) -> Gradient:
    """The same, but nobody computes while one of `count` workers is missing.

    Whoever starts last would else find that the others have done it all, and that the shards have gone.
    """

    def compute(worker: int, batch: int, parameters: Mapping[str, np.ndarray]) -> tuple[Mapping[str, np.ndarray], int]:
        cluster.until_members(count, worker=worker)
        return gradient(worker, batch, parameters)

    return compute


def abandon(session: TrainingSession) -> None:
    """Ends a session as a killed process would: no heartbeat any more, links cut, and nobody is told."""
    session._on_leave = lambda: None
    session.leave()
    # A heartbeat that is under way would look, to the heir of the index, like one of a holder that lives.
    session._heartbeat._thread.join(DEADLINE)


def run_workers(count: int, work: Callable[[int], Outcome]) -> list[Outcome]:
    """Runs `work(i)` in a thread each; raises what one of them raised, without waiting for the others."""
    ended: SimpleQueue[tuple[int, Outcome | BaseException]] = SimpleQueue()

    def run(number: int) -> None:
        try:
            ended.put((number, work(number)))
        except BaseException as error:
            ended.put((number, error))

    for number in range(count):
        threading.Thread(target=run, args=(number,), daemon=True).start()
    outcomes = {}
    deadline = time.monotonic() + DEADLINE
    while len(outcomes) < count:
        try:
            number, result = ended.get(timeout=max(0.0, deadline - time.monotonic()))
        except Empty:
            raise AssertionError(f"worker {set(range(count)) - outcomes.keys()} did not end") from None
        if isinstance(result, BaseException):
            raise result
        outcomes[number] = result
    return [outcomes[number] for number in range(count)]


def final_values(addresses: str) -> tuple[int, dict[str, np.ndarray]]:
    """Reads the cluster's values."""
    with PSClient(addresses, timeout=20.0) as client:
        pulled = client.pull()
        return pulled.global_step, pulled.values
