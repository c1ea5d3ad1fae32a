"""The one loss of a job with several workers."""

from __future__ import annotations

import pytest

from grpc_ps.client.shared.newest_loss import newest_loss


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
