"""Workers with tables and without a model: threads that push what a function of batch, ids and rows says."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grpc_ps.client import PSClient, Reply, TrainingSession
from grpc_ps.client.row_traffic import Wants
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import PeerLost, PeerUnreachable
from grpc_ps.client.shared.rows import Ids, Rows
from grpc_ps.client.shared.tables import TableSpec


def table(name: str = "t", rows: int = 40, dim: int = 3, **rules: Any) -> ParameterSpec:
    return ParameterSpec(name=name, shape=(rows, dim), dtype="float32", table=TableSpec(**rules))


def drawn(specs: Sequence[ParameterSpec], batch: int, most: int = 9) -> dict[str, Ids]:
    """The rows that a batch touches: a function of its number."""
    draw = np.random.default_rng([batch, 5])
    tables = [spec for spec in specs if spec.table is not None]
    return {spec.name: np.unique(draw.integers(0, spec.shape[0], draw.integers(0, most))) for spec in tables}


def pulled_towards(target: float, rows: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The gradient of half the squared distance from `target`."""
    return {name: (array - np.float32(target)).astype(np.float32) for name, array in rows.items()}


@dataclass
class TableOutcome:
    """What one worker saw.

    Attributes:
        missed: batches whose rows did not come with their release.
        read: of each step of the model that it got, the rows.
        values: the whole model after the last step, with all rows of tables, held or not.
    """

    outcomes: list[str] = field(default_factory=list)
    batches: list[int] = field(default_factory=list)
    missed: int = 0
    repeated: int = 0
    last: Reply | None = None
    read: list[tuple[int, int, Mapping[str, np.ndarray]]] = field(default_factory=list)
    values: dict[str, np.ndarray] = field(default_factory=dict)


class TableWorker:
    """Joins, and pushes until the job is done.

    Args:
        wants: which batch's rows a push names, given the hint; None for none.
        at: called with the session before each push.
        at_end: called with the client when the job is done and can still be read.
    """

    def __init__(
        self,
        specs: Sequence[ParameterSpec],
        *,
        ids: Callable[[int], dict[str, Ids]] | None = None,
        wants: Callable[[int | None], int | None] = lambda hint: hint,
        at: Callable[[TrainingSession], None] = lambda session: None,
        at_end: Callable[[PSClient], None] = lambda client: None,
        examples: int = 1,
    ) -> None:
        self._specs = specs
        self._ids = ids or (lambda batch: drawn(specs, batch))
        self._wants = wants
        self._at = at
        self._at_end = at_end
        self._examples = examples

    def run(self, addresses: str, *, pushes: int | None = None, **join: Any) -> TableOutcome:
        outcome = TableOutcome()
        with PSClient(addresses, timeout=20.0) as client:
            session = client.join("test", self._specs, **join)
            if session.opener:
                dense = [spec for spec in self._specs if spec.table is None]
                session.open({spec.name: np.zeros(spec.shape, spec.dtype) for spec in dense})
            reply = session.begin()
            while not reply.done and (pushes is None or len(outcome.outcomes) < pushes):
                reply = self._step(session, reply, outcome)
            outcome.last = reply
            if reply.done and not reply.exit_code:
                outcome.values = whole_model(client, self._specs)
                self._at_end(client)
        return outcome

    def _step(self, session: TrainingSession, reply: Reply, outcome: TableOutcome) -> Reply:
        batch = reply.batch
        assert batch is not None
        ids = self._ids(batch)
        outcome.missed += reply.rows is None
        while not reply.done and (reply.rows is None or reply.batch != batch):
            reply = session.want(ids)
        if reply.done:
            return reply
        assert reply.rows is not None
        outcome.batches.append(batch)
        outcome.read.append((reply.global_step, batch, {name: rows.copy() for name, rows in reply.rows.items()}))
        gradients = pulled_towards(1.0, reply.rows)
        rows = {name: Rows(ids[name], gradients[name]) for name in ids}
        dense = {name: array - np.float32(1) for name, array in session.parameters.items()}
        wanted = self._wants(reply.hint)
        wants = Wants(wanted, self._ids(wanted)) if wanted is not None else None
        self._at(session)
        session.send(dense, self._examples, rows=rows, wants=wants)
        reply = session.wait()
        outcome.outcomes.append(str(reply.outcome))
        outcome.repeated += reply.repeated
        return reply


def whole_model(client: PSClient, specs: Sequence[ParameterSpec]) -> dict[str, np.ndarray]:
    """Reads every row, held or not, and the dense parameters, of one step."""
    rows = {spec.name: np.arange(spec.shape[0]) for spec in specs if _small(spec)}
    for _ in range(5):
        try:
            pulled = client.pull(rows=rows)
            return {**pulled.values, **pulled.rows}
        except (PeerLost, PeerUnreachable) as error:  # A test has just cut the link.
            last = error
    raise last


def _small(spec: ParameterSpec) -> bool:
    return spec.table is not None and spec.shape[0] <= 100_000
