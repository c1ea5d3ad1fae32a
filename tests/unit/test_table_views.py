"""Tables as people and programs see them."""

from __future__ import annotations

import numpy as np
from table_worker import table

from grpc_ps.client.commands.export import _rows
from grpc_ps.client.commands.placement import PlacementView
from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.rows import Rows
from grpc_ps.worker.describe import Parameters

SPECS = [ParameterSpec(name="w", shape=(5,), dtype="float32"), table("t", 41, 3), table("u", 10**9, 8, lazy=True)]


def test_a_placement_has_the_rows_of_tables() -> None:
    view = PlacementView(parameters=SPECS, placement=place(SPECS, 2))
    assert view.shard_bytes == [20 + 21 * 12, 20 * 12]
    record = view.to_dict()["parameters"]
    assert "table" not in record[0]
    assert record[2]["table"] == {"spread": 0.05, "lazy": True, "push_rows": 65536, "capacity": 0}


def test_a_worker_describes_tables() -> None:
    described = Parameters(SPECS)
    assert described.record()["parameters"][1]["table"]["lazy"] is False  # type: ignore[index]
    lines = described.table().splitlines()
    assert lines[1].endswith("table")
    assert lines[2].endswith("lazy table")


def test_what_is_exported_of_a_table() -> None:
    rows = Rows(np.array([3, 8]), np.ones((2, 8), np.float32))
    assert set(_rows(SPECS[2], rows)) == {"u.ids", "u.rows"}
    assert set(_rows(SPECS[1], rows)) == {"t"}
