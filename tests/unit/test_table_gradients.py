"""Batches of a model with tables, whose rows are asked for where another batch is released than was hinted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.client import Reply
from grpc_ps.client.shared.errors import RolledBack
from grpc_ps.models import Array, Batch, Table
from grpc_ps.worker.data import Feed, NumberedFeed
from grpc_ps.worker.slots import Fed
from grpc_ps.worker.streams import StreamFeed
from grpc_ps.worker.table_gradients import ComputedRows, TableGradients
from grpc_ps.worker.tensors import aligned_array
from grpc_ps.worker.variables import Variables


class Model:
    """Batch i looks row i up."""

    tables: Mapping[str, Table] = {"t": Table(rows=100, dim=1)}

    def table_ids(self, features: Array) -> Mapping[str, Array]:
        return {"t": features.astype(np.int64)}


class Numbers:
    """A stream of six batches, and the source of numbered ones: batch i has the number i alone."""

    examples = 0
    fingerprint = "numbers"

    def batches(self, batch_size: int, seed: int, share: int) -> Iterable[Batch]:
        return map(self.batch, range(6))

    def batch(self, number: int) -> Batch:
        return np.array([number], np.float32), np.zeros(1, np.float32)


class Session:
    """Answers what rows are wanted with the next of the test's replies; an error is raised."""

    def __init__(self, *replies: Reply | Exception) -> None:
        self.wanted: list[list[int]] = []
        self._replies = list(replies)

    def want(self, ids: Mapping[str, Array]) -> Reply:
        self.wanted.append(ids["t"].tolist())
        reply = self._replies.pop(0)
        if isinstance(reply, Exception):
            raise reply
        return reply


def release(batch: int, *rows: float) -> Reply:
    return Reply(batch=batch, rows={"t": np.array([rows], np.float32)} if rows else None)


def gradients_of(session: Session, feed: Feed) -> TableGradients:
    variables = Variables([tf.Variable([0.0], name="w")], {"w": aligned_array((1,), np.dtype(np.float32))})
    anything: Any = session
    step: Any = computed
    return TableGradients(Model(), step, variables, anything, feed)


def computed(batch: Fed, ids: Mapping[str, Array], rows: Mapping[str, Array]) -> tuple[Any, dict[str, Any], Any]:
    """The gradient of a row is the row."""
    return tf.constant(0.0), {}, rows


def trained(gradients: TableGradients, reply: Reply) -> tuple[int, list[int], list[float]]:
    """Number of the batch that is computed for a release, its ids, and their rows."""
    ready = gradients.ready(reply)
    assert ready.batch is not None
    found = gradients.due(ready.batch, ready.global_step)
    assert isinstance(found, ComputedRows)
    rows = found.rows["t"]
    return found.batch.number, rows.ids.tolist(), rows.values.reshape(-1).tolist()


def stream() -> StreamFeed:
    return StreamFeed(Numbers(), batch_size=1, seed=0, share=0)


def test_a_share_leaves_no_batch_out_where_another_number_comes_with_the_rows() -> None:
    session = Session(release(9), release(9, 0.5), release(11, 1.5))
    gradients = gradients_of(session, stream())
    assert trained(gradients, release(4)) == (9, [0], [0.5])
    assert trained(gradients, release(10)) == (11, [1], [1.5])
    assert session.wanted == [[0], [0], [1]]


def test_a_number_determines_its_batch_whatever_was_wanted_before() -> None:
    session = Session(release(3), release(3, 3.5))
    gradients = gradients_of(session, NumberedFeed(Numbers()))
    assert trained(gradients, release(2)) == (3, [3], [3.5])
    assert session.wanted == [[2], [3]]


@pytest.mark.parametrize("numbered", [False, True])
def test_a_batch_whose_rows_never_came_is_the_first_one_of_the_next_session(numbered: bool) -> None:
    feed = NumberedFeed(Numbers()) if numbered else stream()
    with pytest.raises(RolledBack):
        gradients_of(Session(RolledBack("again")), feed).ready(release(0))
    again = gradients_of(Session(), feed)
    assert trained(again, release(5, 5.5)) == ((5, [5], [5.5]) if numbered else (5, [0], [5.5]))
