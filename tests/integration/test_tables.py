"""Tables on real shards: rows of one step, applied once, the same bits on any number of shards."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from breaking import STAGES, Breaker
from flaky_link import links_to
from history import wait_for
from light_worker import run_workers
from local_cluster import DEADLINE, LocalCluster
from table_worker import TableOutcome, TableWorker, drawn, table

from grpc_ps.client import PSClient, TrainingSession
from grpc_ps.client.client import TableStatus
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.rows import first_values

DENSE = ParameterSpec(name="w", shape=(5,), dtype="float32")
SPECS = [DENSE, table("t"), table("u", 1000, 8, lazy=True)]
SEED = 11
STEPS = 6


def train(
    shards: int = 1,
    count: int = 1,
    specs: Sequence[ParameterSpec] = SPECS,
    *,
    worker: Mapping[str, Any] | None = None,
    **stated: Any,
) -> tuple[list[TableOutcome], dict[str, np.ndarray]]:
    """Trains to the end; returns what the workers saw, and what was learnt.

    Nobody pushes before all have a batch: else the fast may be done before the slow have joined.
    """
    settings = {"optimizer": "sgd", "learning_rate": 0.5, "seed": SEED, "steps": STEPS, **stated}
    everybody = threading.Barrier(count)
    with LocalCluster(shards) as cluster:

        def work(index: int) -> Any:
            once = iter([everybody])

            def gather(session: TrainingSession) -> None:
                for barrier in once:
                    barrier.wait(DEADLINE)

            return TableWorker(specs, at=gather, **(worker or {})).run(cluster.addresses, stated=settings)

        outcomes: Any = run_workers(count, work)
        assert cluster.wait_ended() == [None] * shards
        assert len({outcome.last.global_step for outcome in outcomes} | {settings["steps"]}) == 1
        return outcomes, outcomes[0].values


def expected(batches: Sequence[int], specs: Sequence[ParameterSpec] = SPECS) -> dict[str, np.ndarray]:
    """What one worker's batches make, one after the other."""
    values = {
        spec.name: first_values(spec, SEED, np.arange(spec.shape[0]))
        if spec.table
        else np.zeros(spec.shape, np.float32)
        for spec in specs
    }
    for batch in batches:
        for name, ids in drawn(specs, batch).items():
            values[name][ids] -= np.float32(0.5) * (values[name][ids] - np.float32(1))
        for spec in specs:
            if spec.table is None:
                values[spec.name] -= np.float32(0.5) * (values[spec.name] - np.float32(1))
    return values


def assert_same(found: Mapping[str, np.ndarray], wanted: Mapping[str, np.ndarray]) -> None:
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        assert np.array_equal(found[name], array), name


@pytest.mark.parametrize("shards", [1, 3])
def test_rows_come_with_the_release_and_are_updated_once(shards: int) -> None:
    (outcome,), values = train(shards)
    assert outcome.outcomes == ["APPLIED"] * STEPS
    # Only the first batch was not named before: nothing had hinted at it.
    assert outcome.missed == 1
    assert_same(values, expected(range(STEPS)))


def test_rows_are_of_the_step_of_the_parameters() -> None:
    (outcome,), _ = train(2)
    for step, batch, rows in outcome.read:
        wanted = expected(range(step))
        for name, ids in drawn(SPECS, batch).items():
            assert np.array_equal(rows[name], wanted[name][ids])


@pytest.mark.parametrize("wants", [lambda hint: None, lambda hint: hint + 1], ids=["nothing", "another"])
def test_a_batch_that_was_not_wanted_is_asked_for(wants: Any) -> None:
    (outcome,), values = train(2, worker={"wants": wants})
    assert outcome.missed == STEPS
    assert_same(values, expected(range(STEPS)))


def test_a_program_hands_in_slices_in_any_order() -> None:
    """The indices of a row that was looked up twice are there twice, as TensorFlow's gradients have them."""
    settings = {"optimizer": "sgd", "learning_rate": 0.5, "seed": SEED, "steps": 1}
    ids, values = np.array([[3, 2], [3, 39]]), np.arange(12, dtype=np.float32).reshape(2, 2, 3)
    slices = SimpleNamespace(indices=ids.reshape(-1), values=values.reshape(-1, 3))
    for gradient in ((ids, values), slices):
        with LocalCluster(2) as cluster, PSClient(cluster.addresses, timeout=20.0) as client:
            session = client.join("test", [table("t")], stated=settings)
            session.open({})
            assert session.begin().batch == 0
            assert client.push({}, rows={"t": gradient}).global_step == 1
            found = client.rows("t", np.arange(40))
        wanted = first_values(table("t"), SEED, np.arange(40))
        np.subtract.at(wanted, ids, np.float32(0.5) * values)
        assert np.allclose(found, wanted, rtol=1e-6)
        assert not np.array_equal(found[3], first_values(table("t"), SEED, np.array([3]))[0])


CLIPPED = {"optimizer": "adam", "learning_rate": 0.1, "global_clip_norm": 0.5}


@pytest.mark.parametrize(
    "stated", [{"optimizer": "adagrad"}, CLIPPED, {"clip_norm": 0.3}, {"clip_value": 0.25}], ids=str
)
def test_rounds_are_bit_equal_on_any_number_of_shards(stated: dict[str, Any]) -> None:
    results = [train(shards, 2, mode="sync", workers=2, steps=4, **stated)[1] for shards in (1, 2, 3)]
    for found in results[1:]:
        assert_same(found, results[0])
    assert not np.array_equal(results[0]["t"], first_values(SPECS[1], SEED, np.arange(40)))


def test_a_round_averages_over_all_rows_that_any_push_has() -> None:
    _, values = train(2, 2, mode="sync", workers=2, steps=1, learning_rate=1.0)
    first = {spec.name: first_values(spec, SEED, np.arange(spec.shape[0])) for spec in SPECS[1:]}
    for name, start in first.items():
        mean = np.zeros_like(start)
        for batch in (0, 1):
            ids = drawn(SPECS, batch)[name]
            mean[ids] += np.float32(0.5) * (start[ids] - np.float32(1))
        np.testing.assert_allclose(values[name], start - mean, rtol=0, atol=1e-7)


def test_asynchronous_workers_lose_no_row() -> None:
    outcomes, values = train(2, 3, steps=30, learning_rate=0.5)
    batches = [batch for outcome in outcomes for batch in outcome.batches]
    applied = [outcome for each in outcomes for outcome in each.outcomes].count("APPLIED")
    assert applied == 30
    # What was hinted came: only the first batch of each was not named before.
    assert all(outcome.missed <= 1 for outcome in outcomes)
    touched = np.unique(np.concatenate([drawn(SPECS, batch)["u"] for batch in range(max(batches) + 1)]))
    untouched = np.setdiff1d(np.arange(1000), touched)
    assert np.array_equal(values["u"][untouched], first_values(SPECS[2], SEED, untouched))


def test_a_late_push_brings_no_rows() -> None:
    """One worker is always last: what it pushes never gets into the model."""
    outcomes, values = train(2, 3, mode="sync", workers=2, backup=1, steps=5)
    kinds = [outcome for each in outcomes for outcome in each.outcomes]
    assert kinds.count("APPLIED") == 10
    assert set(kinds) <= {"APPLIED", "LATE", "DONE"}
    assert np.isfinite(values["t"]).all()


def test_more_rows_than_a_push_may_have_end_the_worker() -> None:
    specs = [table("t", push_rows=4)]
    with pytest.raises(UsageError, match="table t: a batch has 5 rows for one shard, its push_rows are 4"):
        train(1, specs=specs, worker={"ids": lambda batch: {"t": np.arange(5)}})


def test_a_model_of_tables_alone() -> None:
    specs = [table("t"), table("u", 50, 16)]
    (outcome,), values = train(2, specs=specs)
    assert outcome.outcomes == ["APPLIED"] * STEPS
    assert_same(values, expected(range(STEPS), specs))


def test_readers_get_what_they_ask_for_and_no_more() -> None:
    wanted = expected(range(STEPS))

    def read(client: PSClient) -> None:
        plain = client.pull()
        assert (set(plain.values), plain.rows, plain.tables) == ({"w"}, {}, {})
        ids = [30, 2, 2, 7]
        assert np.array_equal(client.rows("t", ids), wanted["t"][ids])
        whole = client.pull(tables=["t", "u"]).tables
        assert whole["t"].ids.tolist() == list(range(40))
        assert np.array_equal(whole["t"].values, wanted["t"])
        touched = np.unique(np.concatenate([drawn(SPECS, batch)["u"] for batch in range(STEPS)]))
        assert np.array_equal(whole["u"].ids, touched)
        assert np.array_equal(whole["u"].values, wanted["u"][touched])
        with pytest.raises(UsageError, match="no table 'x'; there are: t, u"):
            client.rows("x", [1])
        with pytest.raises(UsageError, match="table t: rows are from 0 to 39"):
            client.rows("t", [40])
        with pytest.raises(UsageError, match="t is a table, of which rows are read"):
            client.pull(["t"])

    train(2, worker={"at_end": read})


def test_more_rows_are_read_than_one_message_can_name() -> None:
    specs = [table("wide", 150_000, 1, lazy=True, push_rows=150_000)]
    ids = np.arange(150_000)
    wanted = expected(range(STEPS), specs)["wide"]

    def read(client: PSClient) -> None:
        assert np.array_equal(client.rows("wide", ids), wanted)

    train(1, specs=specs, worker={"at_end": read})


def test_a_hundred_million_lazy_rows_take_what_is_touched() -> None:
    specs = [table("big", 100_000_000, 16, lazy=True)]
    with LocalCluster(2) as cluster:

        def look(client: PSClient) -> None:
            held = [server._replay._updates.views()[0].held for server in cluster.servers]
            touched = np.unique(np.concatenate([drawn(specs, batch)["big"] for batch in range(5)]))
            assert sum(held) == len(touched)
            # Values and one slot, of float32; a follower tells twice a second.
            shown = [(TableStatus(name="big", rows=rows, capacity=0, bytes=rows * 16 * 4 * 2),) for rows in held]
            wait_for(lambda: [shard.tables for shard in client.status().shards] == shown, "all have told")
            last = np.array([99_999_999])
            assert np.array_equal(client.rows("big", last), first_values(specs[0], SEED, last))

        settings = {"optimizer": "adagrad", "seed": SEED, "steps": 5}
        outcome = TableWorker(specs, at_end=look).run(cluster.addresses, stated=settings)
        assert outcome.outcomes == ["APPLIED"] * 5


@pytest.mark.parametrize("shard", [0, 1])
def test_links_that_break_at_every_stage_lose_no_row_and_update_none_twice(shard: int) -> None:
    stages = STAGES * 2
    settings = {"optimizer": "sgd", "learning_rate": 0.5, "seed": SEED, "steps": len(stages)}
    with LocalCluster(2) as cluster, links_to(cluster.addresses) as links:
        breaker, rounds = Breaker(cluster, shard, links[shard].cut, worker=0), iter(stages)
        worker = TableWorker(SPECS, at=lambda session: breaker.arm(next(rounds, "")))
        outcome = worker.run(",".join(link.address for link in links), stated=settings)
        assert cluster.wait_ended() == [None, None]
    assert breaker.fired == list(stages)
    assert outcome.outcomes == ["APPLIED"] * len(stages)
    assert_same(outcome.values, expected(range(len(stages))))


def test_rows_that_a_broken_stream_had_begun_are_forgotten() -> None:
    with LocalCluster(1) as cluster:
        free = cluster.staged_bytes()
        with PSClient(cluster.addresses, timeout=20.0) as client:
            session = client.join("test", SPECS, stated={"steps": 3, "seed": SEED})
            session.open({"w": np.zeros(5, np.float32)})
            session.begin()
            held = cluster.staged_bytes()
            # The image, then ids and gradients of all that a push may have, then ids of as many that it may want.
            assert held[0] > free[0] + 1000 * 8 * 4
        cluster.wait_staged(free)


def test_a_capacity_that_is_exceeded_ends_the_job_in_one_line() -> None:
    specs = [table("t", 1000, 4, lazy=True, capacity=5)]
    with LocalCluster(1) as cluster:
        worker = TableWorker(specs, ids=lambda batch: {"t": np.arange(3) + 3 * batch})
        outcome = worker.run(cluster.addresses, stated={"steps": 9, "seed": SEED})
        assert outcome.last is not None
        assert outcome.last.exit_code == 2
        said = "table t: 6 rows are touched on shard 0, its capacity is 5"
        assert said in outcome.last.reason
        (ended,) = cluster.wait_ended()
        assert said in str(ended)
