"""Tables in checkpoints: saved beside training, restored on other numbers of shards with their slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_cluster import LocalCluster
from safetensors.numpy import load_file
from table_worker import TableWorker, drawn, table

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.checkpoint import Checkpoint, read_manifest, verify
from grpc_ps.client.shared.checkpoint_flags import CheckpointSettings
from grpc_ps.client.shared.checkpoint_rows import stored_rows, whole_table
from grpc_ps.psserver.checkpoint import CheckpointFiles
from grpc_ps.psserver.table_memory import TableMemory

SPECS = [ParameterSpec(name="w", shape=(5,), dtype="float32"), table("t"), table("u", 100_000, 8, lazy=True)]
RULES = {"adagrad": {"optimizer": "adagrad"}, "momentum": {"optimizer": "momentum"}, "adam": {"optimizer": "adam"}}


def train(directory: Path | None, shards: int, steps: int, **stated: Any) -> dict[str, np.ndarray]:
    settings = {"learning_rate": 0.1, "seed": 5, "steps": steps, **stated}
    checkpoints = CheckpointSettings(directory=directory, steps=4) if directory else None
    with LocalCluster(shards, checkpoints=checkpoints) as cluster:
        outcome = TableWorker(SPECS).run(cluster.addresses, stated=settings)
        assert cluster.wait_ended() == [None] * shards
        return outcome.values


@pytest.mark.parametrize("rule", RULES)
def test_a_job_goes_on_with_other_shards_to_the_same_bits(tmp_path: Path, rule: str) -> None:
    wanted = train(None, 1, 9, **RULES[rule])
    train(tmp_path, 2, 3, **RULES[rule])
    train(tmp_path, 3, 6, **RULES[rule])
    found = train(tmp_path, 1, 9, **RULES[rule])
    for name, array in wanted.items():
        assert np.array_equal(found[name], array), name
    assert verify(tmp_path / "step-00000006") == []


def test_what_is_in_a_checkpoint(tmp_path: Path) -> None:
    values = train(tmp_path, 2, 5, optimizer="adagrad")
    path = tmp_path / "step-00000005"
    assert verify(path) == []
    touched = np.unique(np.concatenate([drawn(SPECS, batch)["u"] for batch in range(5)]))
    manifest = read_manifest(path)
    assert {spec.name: spec.table for spec in manifest.parameters} == {spec.name: spec.table for spec in SPECS}
    with Checkpoint(path, manifest).open() as reader:
        whole = whole_table(reader, SPECS[1])
        assert whole.ids.tolist() == list(range(40))
        assert np.array_equal(whole.values, values["t"])
        lazy = whole_table(reader, SPECS[2])
        assert np.array_equal(lazy.ids, touched)
        assert np.array_equal(lazy.values, values["u"][touched])
        assert [part.slots for part in stored_rows(reader, SPECS[2])] == [("slot.accumulator",)] * 2
        assert reader.slots() == {"t": ("accumulator",), "u": ("accumulator",), "w": ("accumulator",)}
    # Anybody may read them, with the package alone.
    part = load_file(path / "shard-00001-of-00002.safetensors")
    assert part["slots/rows.ids/t[0:20]"].tolist() == list(range(1, 40, 2))
    assert np.array_equal(part["slots/rows.values/t[0:60]"].reshape(20, 3), values["t"][1::2])


def test_rows_that_are_missing_are_found_out(tmp_path: Path) -> None:
    train(tmp_path, 2, 2, optimizer="sgd")
    path = tmp_path / "step-00000002"
    manifest = read_manifest(path)
    with Checkpoint(path, manifest).open() as reader:
        reader._readers.pop()
        from grpc_ps.client.shared.checkpoint_rows import problem_of_rows

        assert problem_of_rows(reader, SPECS[1]) == "has not every row of table t once"
        assert problem_of_rows(reader, SPECS[2]) == ""


def test_a_slot_that_overflows_is_not_saved(tmp_path: Path) -> None:
    """Adagrad adds up squares: of a gradient of 1e30 they are infinite, and the row itself stays as it is."""
    files = CheckpointFiles(tmp_path, 0, 1)
    memory = TableMemory(SPECS[2], {"accumulator": 0.1}, seed=5, shard=0, shard_count=1)
    places = memory.places(np.array([7, 99]))
    memory.write(places, {"accumulator": np.full((2, 8), 2.0, np.float32)})
    assert files.write("a", 3, [], [memory.view(slots=True)]).bytes > 0
    memory.write(places[1:], {"accumulator": np.full((1, 8), np.inf, np.float32)})
    saved = files.write("b", 4, [], [memory.view(slots=True)])
    assert saved.non_finite
    assert "accumulator" in saved.error
    assert not (tmp_path / "b").exists()
