"""Tables in checkpoints: saved beside training, restored on other numbers of shards with their slots."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from local_cluster import LocalCluster
from safetensors.numpy import load_file
from table_worker import TableOutcome, TableWorker, drawn, table

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.checkpoint import Checkpoint, CheckpointReader, read_manifest, verify
from grpc_ps.client.shared.checkpoint_flags import CheckpointSettings
from grpc_ps.client.shared.checkpoint_rows import problem_of_rows, stored_rows, whole_table
from grpc_ps.psserver.checkpoint import CheckpointFiles
from grpc_ps.psserver.table_memory import TableMemory
from grpc_ps.psserver.tail import ShardTables

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


def test_a_capacity_that_was_too_small_is_raised_and_the_job_goes_on(tmp_path: Path) -> None:
    """Batch b touches row b alone. With a capacity of 3 on each of two shards the seventh batch is one too many."""
    stated = {"optimizer": "sgd", "learning_rate": 1.0, "steps": 10, "seed": 5}

    def run(capacity: int, shards: int) -> tuple[TableOutcome, list[BaseException | None]]:
        specs = [table("t", 1000, 4, lazy=True, capacity=capacity)]
        worker = TableWorker(specs, ids=lambda batch: {"t": np.array([batch])})
        with LocalCluster(shards, checkpoints=CheckpointSettings(directory=tmp_path, steps=2)) as cluster:
            return worker.run(cluster.addresses, stated=stated), cluster.wait_ended()

    failed, ended = run(3, 2)
    assert failed.last is not None
    assert (failed.last.exit_code, [getattr(one, "exit_code", None) for one in ended]) == (2, [2, 2])
    for said in (failed.last.reason, *map(str, ended)):
        assert "table t: 4 rows are touched on shard 0, its capacity is 3: give the model's Table a larger" in said
    again, ended = run(10, 1)
    assert again.last is not None
    assert (again.last.exit_code, again.last.global_step, set(again.outcomes)) == (0, 10, {"APPLIED"})
    assert (ended, again.batches[-1]) == ([None], 9)
    manifest = read_manifest(tmp_path / "step-00000010")
    assert [spec.table and spec.table.capacity for spec in manifest.parameters] == [10]


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


@pytest.mark.parametrize(("shard", "shards", "parts"), [(1, 2, [1]), (3, 4, [1]), (0, 1, [0, 1]), (2, 3, [0, 1])])
def test_a_shard_reads_the_parts_alone_that_may_have_its_rows(
    saved: Path, monkeypatch: pytest.MonkeyPatch, shard: int, shards: int, parts: list[int]
) -> None:
    """Two shards have written row r into part r mod 2. Of the others not even the ids are read."""
    read: set[int] = set()
    of_part = CheckpointReader.read_in_part

    def reading(reader: CheckpointReader, part: int, *what: Any) -> None:
        read.add(part)
        of_part(reader, part, *what)

    monkeypatch.setattr(CheckpointReader, "read_in_part", reading)
    memory = TableMemory(SPECS[1], {}, seed=5, shard=shard, shard_count=shards)
    tables = ShardTables((SPECS[1],), shard, shards)
    CheckpointFiles(saved, shard, shards).read_tables("step-00000002", [memory], tables)
    assert sorted(read) == parts
    with Checkpoint(saved / "step-00000002", read_manifest(saved / "step-00000002")).open() as reader:
        whole = whole_table(reader, SPECS[1])
    assert np.array_equal(memory.view().read(np.arange(shard, 40, shards)), whole.values[shard::shards])


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("saved")
    train(directory, 2, 2, optimizer="sgd")
    return directory


def test_rows_in_another_shards_part_are_found_out(saved: Path) -> None:
    path = saved / "step-00000002"
    with Checkpoint(path, read_manifest(path)).open() as reader:
        assert problem_of_rows(reader, SPECS[1]) == ""
        reader._readers = reader._readers[::-1]
        assert problem_of_rows(reader, SPECS[1]) == "has rows of table t in part 0 that are another part's"


def test_rows_that_are_missing_are_found_out(tmp_path: Path) -> None:
    train(tmp_path, 2, 2, optimizer="sgd")
    path = tmp_path / "step-00000002"
    manifest = read_manifest(path)
    with Checkpoint(path, manifest).open() as reader:
        reader._readers.pop()
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
