"""The gradients of a session's batches of a model with tables: rows are wanted before they are needed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from grpc_ps.client import PsError, Reply, TrainingSession
from grpc_ps.client.row_traffic import Wants
from grpc_ps.client.shared.rows import Ids, Rows
from grpc_ps.models import Array
from grpc_ps.worker.data import Feed
from grpc_ps.worker.gradients import Computed
from grpc_ps.worker.slots import Fed
from grpc_ps.worker.table_step import TableStep
from grpc_ps.worker.tables import needed_rows
from grpc_ps.worker.variables import Variables


@dataclass(frozen=True)
class ComputedRows(Computed):
    """The same with the gradients of rows, by table."""

    rows: Mapping[str, Rows]


class TableGradients:
    """Computes what a session sends, as `Gradients`, for a model with tables.

    A push names the rows of the batch that is probably next, so that the answer brings them: that batch is loaded
    before the push is sent. Where another one is released, its rows are asked for, which takes one more exchange.

    Args:
        lap: charges the time since it was last called to a phase.
    """

    overlaps = False

    def __init__(
        self,
        model: Any,
        step: TableStep,
        variables: Variables,
        session: TrainingSession,
        feed: Feed,
        *,
        lap: Callable[[str], None] = lambda phase: None,
    ) -> None:
        self._model = model
        self._step = step
        self._variables = variables
        self._session = session
        self._feed = feed
        self._lap = lap
        self._ahead: tuple[int, dict[str, Ids]] | None = None
        self._batch: Fed | None = None
        self._ids: dict[str, Ids] = {}
        self._rows: Mapping[str, Array] = {}

    def ready(self, reply: Reply) -> Reply:
        """Has the rows of the reply's batch; the reply that brought them, or the end of the job.

        Raises:
            DataError: the data set has failed, or an id is not in its table.
        """
        assert reply.batch is not None, "a release has parameters and a batch number together"
        self._batch = batch = self._feed.take(reply.batch)
        if batch is None:
            return reply
        ahead, self._ahead = self._ahead, None
        self._ids = ahead[1] if ahead is not None and ahead[0] == batch.loading else self._needed(batch)
        self._lap("input")
        while not reply.done and reply.rows is None:
            reply = self._want(batch)
            if not reply.done and reply.batch != batch.number:
                # Of data without numbers this batch is the other number's as well: none is left out.
                self._keep(batch)
                return self.ready(reply)
        self._rows = reply.rows or {}
        return reply

    def _want(self, batch: Fed) -> Reply:
        try:
            return self._session.want(self._ids)
        except PsError:
            # The session is lost, and the share goes on in the next one.
            self._keep(batch)
            raise

    def _keep(self, batch: Fed) -> None:
        self._ahead = batch.loading, self._ids
        self._feed.give_back(batch)

    def _needed(self, batch: Fed) -> dict[str, Ids]:
        return needed_rows(self._model, np.asarray(memoryview(batch.features)))

    def due(self, number: int, base_step: int) -> Computed | None:
        """The gradient of that batch, for which `ready` has been called; None if the data is used up."""
        if self._batch is None:
            return None
        self._variables.refresh()
        loss, gradients, of_rows = self._step(self._batch, self._ids, self._rows)
        gradients.update(self._variables.deltas())
        rows = {name: Rows(self._ids[name], values) for name, values in of_rows.items()}
        self._lap("compute")
        return ComputedRows(self._batch, base_step, loss, gradients, rows)

    def send(self, computed: Computed, hint: int | None) -> None:
        """Sends a gradient, and with it the ids of the rows that the hinted batch needs.

        Raises:
            UsageError: a batch has more rows than a push may have.
        """
        assert isinstance(computed, ComputedRows)
        self._feed.prepare(hint)
        batch, wants = self._feed.prepared, None
        if batch is not None and hint is not None:
            self._ahead = batch.loading, self._needed(batch)
            wants = Wants(hint, self._ahead[1])
        self._lap("input")
        self._session.send(
            computed.gradients, computed.batch.examples, base_step=computed.base_step, rows=computed.rows, wants=wants
        )

    def look_ahead(self, hint: int | None, base_step: int) -> None:
        """Does nothing: the batch that is probably next has been prepared."""
