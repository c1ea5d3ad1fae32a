"""One step of a model with tables: what is looked up, the sums of its gradients, and lookups that cannot be."""

from __future__ import annotations

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.models.embedding import Embedding
from grpc_ps.worker.slots import Slots
from grpc_ps.worker.table_step import TableStep

LOOKED_UP = np.array([[7, 2, 7, 9], [2, 2, 2, 7]])
IDS = np.array([2, 7, 9])
ROWS = np.array([[0.5, 1.0], [2.0, -1.0], [4.0, 1.5]], np.float32)


def test_a_row_that_is_looked_up_several_times_has_the_sum_of_its_gradients() -> None:
    batch = Slots().load(0, (LOOKED_UP, np.array([1.0, 3.0], np.float32)))
    loss, dense, rows = TableStep(Embedding(rows=10, dim=2, ids=4))(batch, {"emb": IDS}, {"emb": ROWS})
    distances = ROWS[np.searchsorted(IDS, LOOKED_UP)] - np.array([1.0, 3.0])[:, None, None]
    summed = np.zeros((3, 2))
    np.add.at(summed, np.searchsorted(IDS, LOOKED_UP), 2 * distances / distances.size)
    assert float(loss) == pytest.approx(np.mean(distances**2))
    assert dense == {}
    assert rows["emb"] == pytest.approx(summed)


@pytest.mark.parametrize("strange", [0, 3, 8, 10])
def test_a_lookup_of_what_table_ids_does_not_give_is_an_error(strange: int) -> None:
    batch = Slots().load(0, (np.array([[7, 2, strange, 9]]), np.ones(1, np.float32)))
    said = "a lookup of ids that table_ids does not give for table emb"
    with pytest.raises(tf.errors.InvalidArgumentError, match=said):
        TableStep(Embedding(rows=10, dim=2, ids=4))(batch, {"emb": IDS}, {"emb": ROWS})
