"""The one loss of a job with several workers."""

from __future__ import annotations

import pytest
from fake_control import status

from grpc_ps.client.commands import tables
from grpc_ps.client.commands.watch import line_of
from grpc_ps.client.shared.newest_loss import newest_loss
from grpc_ps.client.status import cluster_status
from grpc_ps.protos import control_pb2 as wire


@pytest.mark.parametrize(
    ("told", "loss"),
    [
        ([], None),
        ([(None, None), (0.5, None)], None),
        ([(None, 7)], None),
        ([(0.25, 7)], 0.25),
        # Computed on the first values, and not applied: the job was done.
        ([(0.001, 100), (0.4389, None)], 0.001),
        # In sync the last round, without who was left out of it.
        ([(0.5, 30), (0.25, 30), (8.0, 29), (8.0, None)], 0.375),
        # In async the newest pushes, as many as there are workers that had one.
        ([(0.5, 99), (0.25, 100), (8.0, None)], 0.375),
        ([(0.5, 97), (0.25, 100), (0.75, 98)], 0.5),
        # One of long ago says nothing of the model as it is.
        ([(8.0, 2), (0.25, 100)], 0.25),
    ],
)
def test_only_the_newest_applied_pushes_count(told: list[tuple[float | None, int | None]], loss: float | None) -> None:
    assert newest_loss(told) == loss


def test_status_and_watch_show_it() -> None:
    told = [(0.5, 30), (0.25, 29), (8.0, 2), (8.0, None)]
    workers = [wire.WorkerStatus(worker=number, loss=loss, applied_step=at) for number, (loss, at) in enumerate(told)]
    now = cluster_status(status(workers=workers))
    assert (now.loss, tables.loss(now)) == (0.375, "loss 0.375")
    assert ", workers 4, loss 0.375" in line_of(now, None)
    assert cluster_status(status(workers=workers[3:])).loss is None
