"""A shard's rows in memory: found, held when touched, kept for whoever looks at an earlier position."""

from __future__ import annotations

import gc
import random
import threading
from typing import Any

import numpy as np
import pytest

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.rows import first_values, view_gradients
from grpc_ps.client.shared.tables import TableSpec
from grpc_ps.psserver.row_index import TouchedIndex, WholeIndex
from grpc_ps.psserver.saved_rows import ViewBytes
from grpc_ps.psserver.table_memory import VALUES, TableMemory
from grpc_ps.psserver.table_reading import TableImage


def spec_of(rows: int, **rules: Any) -> ParameterSpec:
    return ParameterSpec(name="t", shape=(rows, 3), dtype="float32", table=TableSpec(**rules))


def memory(rows: int = 20, shard: int = 0, shards: int = 1, **rules: Any) -> TableMemory:
    return TableMemory(spec_of(rows, **rules), {"a": 0.5}, seed=4, shard=shard, shard_count=shards)


def read(table: TableMemory, *ids: int) -> np.ndarray:
    out = np.empty((len(ids), 3), np.float32)
    table.read(np.array(ids), out)
    return out


def write(table: TableMemory, ids: list[int], value: float) -> None:
    places = table.places(np.array(ids))
    rows = np.full((len(ids), 3), value, np.float32)
    table.write(places, {VALUES: rows, "a": rows + 1})


def test_a_whole_index_is_arithmetic() -> None:
    index = WholeIndex(10, 1, 3)
    assert index.held == 3
    assert index.find(np.array([1, 4, 7])).tolist() == [0, 1, 2]
    assert index.ids(1, 3).tolist() == [4, 7]


def test_touched_rows_are_found_like_those_of_a_dict() -> None:
    draw = random.Random(3)
    index, known = TouchedIndex(), {}
    for _ in range(60):
        # Neighbours, multiples of powers of two, and anything: what a hash may put in one place.
        start, step = draw.randrange(2**50), draw.choice([1, 2, 64, 2**20, 2**33])
        ids = np.unique([start + step * draw.randrange(300) for _ in range(120)])
        assert index.find(ids).tolist() == [known.get(each, -1) for each in ids.tolist()]
        places = index.add(ids)
        for each, place in zip(ids.tolist(), places.tolist(), strict=True):
            assert known.setdefault(each, place) == place
    assert sorted(known.values()) == list(range(index.held))
    assert {each: place for place, each in enumerate(index.ids(0, index.held).tolist())} == known
    assert index.held > 4000


@pytest.mark.parametrize("lazy", [False, True])
def test_rows_begin_as_the_seed_says_and_slots_as_the_optimizer_does(lazy: bool) -> None:
    table = memory(lazy=lazy)
    first = first_values(table.spec, 4, np.arange(20))
    assert np.array_equal(read(table, 3, 17), first[[3, 17]])
    assert table.held == (0 if lazy else 20)
    places = table.places(np.array([3, 17]))
    out = np.empty((2, 3), np.float32)
    table.take(VALUES, places, out)
    assert np.array_equal(out, first[[3, 17]])
    table.take("a", places, out)
    assert (out == 0.5).all()
    assert table.held == (2 if lazy else 20)


def test_memory_grows_with_what_is_touched() -> None:
    table = memory(100_000_000, lazy=True)
    assert table.nbytes == 0
    ids = np.arange(5000) * 19_999
    for part in np.array_split(ids, 7):
        write(table, part.tolist(), float(part[0]))
    assert table.held == 5000
    assert table.nbytes == 5000 * 3 * 4 * 2
    for part in np.array_split(ids, 7):
        assert (read(table, *part.tolist()) == np.float32(part[0])).all()
    assert np.array_equal(read(table, 1), first_values(table.spec, 4, np.array([1])))


def test_a_capacity_is_kept_to() -> None:
    table = memory(lazy=True, capacity=3)
    write(table, [1, 5, 9], 1.0)
    write(table, [5], 2.0)
    with pytest.raises(
        UsageError, match="table t: 4 rows are touched on shard 0, its capacity is 3: give the model's "
    ):
        table.places(np.array([2]))


def test_what_a_checkpoint_has_beyond_the_capacity_is_taken_and_no_row_more() -> None:
    """It was written by more shards: the job must begin, or nobody could say that it may have more rows."""
    table = memory(lazy=True, capacity=3)
    for name in (VALUES, "a"):
        table.restore(np.arange(5), name, np.full((5, 3), 7.0, np.float32))
    assert table.held == 5
    assert (read(table, 4) == 7.0).all()
    write(table, [4], 1.0)
    with pytest.raises(UsageError, match="6 rows are touched on shard 0, its capacity is 3"):
        write(table, [5], 1.0)


@pytest.mark.parametrize("lazy", [False, True])
def test_a_view_stays_as_it_was(lazy: bool) -> None:
    table = memory(4000, shard=1, shards=2, lazy=lazy)
    ids = np.arange(1, 4000, 2)
    write(table, [3, 5], 1.0)
    before = read(table, *ids.tolist())
    view = table.view(slots=True)
    slots = {place: row.copy() for place, row in enumerate(table._arrays["a"][: view.held])}
    write(table, [5, 7], 2.0)
    late = table.view()
    write(table, ids.tolist(), 3.0)
    assert (read(table, *ids.tolist()) == 3.0).all()
    assert np.array_equal(view.read(ids), before)
    held = view.ids(0, view.held)
    assert held.tolist() == ([3, 5] if lazy else ids.tolist())
    assert np.array_equal(view.at(0, view.held), before[(held - 1) // 2])
    assert all(np.array_equal(view.at(place, place + 1, "a")[0], row) for place, row in slots.items())
    assert late.read(np.array([3, 5, 7, 9])).tolist() == [[1.0] * 3, [2.0] * 3, [2.0] * 3, before[4].tolist()]


class Announced:
    """A lock that tells when somebody has to wait for it."""

    def __init__(self, waited_for: threading.Event) -> None:
        self._lock = threading.Lock()
        self._waited_for = waited_for

    def __enter__(self) -> None:
        if not self._lock.acquire(blocking=False):
            self._waited_for.set()
            self._lock.acquire()

    def __exit__(self, *error: object) -> None:
        self._lock.release()


def test_a_view_is_read_while_the_index_of_held_rows_grows(monkeypatch: pytest.MonkeyPatch) -> None:
    """An index that is made anew is empty for a moment: rows would be read as if nobody had updated them."""
    table, looked, found = memory(100_000, lazy=True), threading.Event(), []
    monkeypatch.setattr(table, "_lock", Announced(looked))
    write(table, [3, 5], 1.0)
    view, enter = table.view(), TouchedIndex._enter

    def look() -> None:
        found.append(view.read(np.array([3, 5])))
        looked.set()

    reader = threading.Thread(target=look)

    def entered(index: TouchedIndex, ids: np.ndarray, places: np.ndarray) -> None:
        if not looked.is_set():
            reader.start()
            assert looked.wait(30)
        enter(index, ids, places)

    monkeypatch.setattr(TouchedIndex, "_enter", entered)
    write(table, list(range(1000, 2000)), 2.0)
    reader.join(30)
    assert (found[0] == 1.0).all()


def test_rows_for_a_reader_are_read_as_they_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    table, asked = memory(4000), []
    ids, view = np.arange(0, 4000, 2), table.view()
    before, read = view.read(ids), view.read
    monkeypatch.setattr(view, "read", lambda some: asked.append(len(some)) or read(some))
    image = TableImage(view, ids, 1024, 0)
    write(table, list(range(4000)), 9.0)
    data = b"".join(bytes(piece) for span in image._spans for piece in image.pieces(*span))
    assert sum(asked) >= 2000
    assert max(asked) <= 1024 // 12 + 2
    (rows,) = view_gradients([table.spec], [image.count], np.frombuffer(data, np.uint8))
    assert np.array_equal(rows.ids, ids)
    assert np.array_equal(rows.values, before)


def test_the_bytes_of_a_view_may_be_cut_anywhere() -> None:
    table = memory(50)
    view = table.view()
    whole = view.at(0, 50).tobytes()
    write(table, list(range(50)), 9.0)
    data = ViewBytes(view, VALUES)
    assert data.nbytes == len(whole)
    for step in (7, 12, 600, 1000):
        assert b"".join(bytes(data[at : at + step]) for at in range(0, data.nbytes, step)) == whole


def test_who_looks_at_nothing_costs_nothing() -> None:
    table = memory()
    view = table.view()
    write(table, [1], 1.0)
    assert len(table._views) == 1
    del view
    gc.collect()
    assert len(table._views) == 0
