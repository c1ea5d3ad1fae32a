"""Rows between a session and its shards: split by row, put together again, refused where they do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_worker import table

from grpc_ps.client.answers import Reply
from grpc_ps.client.row_traffic import RowTraffic, Wants
from grpc_ps.client.shared.codec import detach_chunk
from grpc_ps.client.shared.errors import Corrupt, InvalidPush, UsageError
from grpc_ps.client.shared.rows import Rows, values_bytes, view_gradients, view_ids, view_values
from grpc_ps.protos import parameter_server_pb2 as wire

TABLES = [table("t", 40, 3), table("u", 1000, 8, push_rows=20)]
IDS = st.lists(st.integers(0, 39), unique=True, max_size=15).map(lambda ids: np.array(sorted(ids), np.int64))


def rows(ids: Any, dim: int) -> Rows:
    ids = np.array(ids, np.int64)
    return Rows(ids, (ids[:, None] * 10 + np.arange(dim)).astype(np.float32))


@given(t=IDS, u=IDS, wanted=IDS, shards=st.integers(1, 4))
def test_each_shard_gets_its_own_rows(t: Any, u: Any, wanted: Any, shards: int) -> None:
    traffic = RowTraffic(TABLES, shards)
    wants = Wants(5, {"t": wanted, "u": wanted})
    tails = traffic.tails({"t": rows(t, 3), "u": rows(u, 8)}, wants)
    assert tails is not None
    for shard, tail in enumerate(tails):
        header = wire.PushHeader(total_bytes=64)
        tail.mark(header)
        assert header.total_bytes == 64 + tail.total_bytes
        chunks = [b"".join(tail.pieces(at, 64)) for at in range(0, tail.total_bytes, 64)]
        assert {len(chunk) for chunk in chunks} <= {64}
        buffer = np.frombuffer(b"".join(chunks), np.uint8)
        found = view_gradients(TABLES, header.rows, buffer)
        for some, ids in zip(found, (t, u), strict=True):
            mine = ids[ids % shards == shard]
            assert some.ids.tolist() == mine.tolist()
            assert np.array_equal(some.values, rows(mine, some.values.shape[1]).values)
        behind = sum(-(-count * 8 // 64) * 64 for count in header.wanted_rows)
        lists = view_ids(header.wanted_rows, buffer[len(buffer) - behind :])
        assert all(ids.tolist() == wanted[wanted % shards == shard].tolist() for ids in lists)


@given(t=IDS, u=IDS, shards=st.integers(1, 4))
def test_a_release_is_put_together_in_the_order_of_the_ids(t: Any, u: Any, shards: int) -> None:
    traffic = RowTraffic(TABLES, shards)
    traffic.tails({}, Wants(5, {"t": t, "u": u}))
    for shard in range(shards):
        receiver = traffic.receiver(shard)
        assert receiver is not None
        lists = [ids[ids % shards == shard] for ids in (t, u)]
        counts = [len(ids) for ids in lists]
        buffer = np.zeros(receiver.begin(counts, "here"), np.uint8)
        assert len(buffer) == values_bytes(TABLES, counts)
        for view, ids in zip(view_values(TABLES, counts, buffer), lists, strict=True):
            view[...] = rows(ids, view.shape[1]).values
        for at in range(0, len(buffer), 64):
            receiver.take(at, buffer[at : at + 64].data)
    reply = traffic.complete(Reply(batch=5))
    assert reply.rows is not None
    assert np.array_equal(reply.rows["t"], rows(t, 3).values)
    assert np.array_equal(reply.rows["u"], rows(u, 8).values)
    assert traffic.complete(Reply(batch=6)).rows is None


def test_a_release_that_lacks_one_shards_rows_has_none() -> None:
    traffic = RowTraffic(TABLES, 2)
    traffic.tails({}, Wants(5, {"t": np.array([1, 2]), "u": np.array([], np.int64)}))
    first, second = traffic.receiver(0), traffic.receiver(1)
    assert first is not None
    assert second is not None
    first.begin([1, 0], "here")
    second.begin([], "there")
    assert traffic.complete(Reply(batch=5)).rows is None
    second.begin([1, 0], "there")
    assert traffic.complete(Reply(batch=5)).rows is not None
    with pytest.raises(Corrupt, match="there: rows of 1 tables instead of 2"):
        second.begin([1], "there")


def test_without_tables_nothing_stands_behind_an_image() -> None:
    traffic = RowTraffic([], 2)
    assert (traffic.tails({}, None), traffic.receiver(1)) == (None, None)
    assert traffic.complete(Reply(batch=1)) == Reply(batch=1)
    with pytest.raises(RuntimeError, match="no tables"):
        traffic.requests(Wants(1, {}), wire.PushHeader(), 1 << 20)


def test_wants_without_a_push() -> None:
    traffic = RowTraffic(TABLES, 2)
    wants = Wants(9, {"t": np.arange(1, 40, 2), "u": np.array([2])})
    header = wire.PushHeader(kind=wire.PushHeader.KIND_WANTS)
    first, second = (list(messages) for messages in traffic.requests(wants, header, 128))
    parsed = [detach_chunk(wire.PushPullRequest, data) for data in second]
    assert [message.end for message, _ in parsed] == [False, True]
    begin = parsed[0][0].header
    assert (begin.wanted_batch, list(begin.wanted_rows), begin.total_bytes) == (9, [20, 0], 192)
    assert b"".join(chunk.data for _, chunk in parsed if chunk) == np.arange(1, 40, 2).tobytes() + bytes(32)
    (message, chunk) = detach_chunk(wire.PushPullRequest, first[0])
    assert (list(message.header.wanted_rows), message.end) == ([0, 1], True)
    assert chunk is not None


def test_of_a_table_that_is_not_named_nothing_is_wanted() -> None:
    traffic = RowTraffic(TABLES, 1)
    wants = Wants(9, {"u": np.array([2])})
    ((first,),) = traffic.requests(wants, wire.PushHeader(), 1 << 20)
    message, _ = detach_chunk(wire.PushPullRequest, first)
    assert list(message.header.wanted_rows) == [0, 1]
    (tail,) = traffic.tails({}, wants) or ()
    assert list(tail.wanted_rows) == [0, 1]
    receiver = traffic.receiver(0)
    assert receiver is not None
    receiver.begin([0, 1], "here")
    assert {name: len(some) for name, some in (traffic.complete(Reply(batch=9)).rows or {}).items()} == {"t": 0, "u": 1}
    with pytest.raises(InvalidPush, match="x is no table"):
        traffic.requests(Wants(9, {"x": np.array([2])}), wire.PushHeader(), 1 << 20)


@pytest.mark.parametrize(
    ("pushed", "error", "said"),
    [
        ({"x": rows([1], 3)}, InvalidPush, "x is no table"),
        ({"t": rows([1], 4)}, InvalidPush, r"table t: expected int64 ids and float32 \(1, 3\), got int64 ids and"),
        (
            {"t": Rows(np.array([1]), np.zeros((1, 3)))},
            InvalidPush,
            r"expected int64 ids and float32 \(1, 3\), got int64 ids and float64",
        ),
        ({"u": rows(range(21), 8)}, UsageError, "table u: a batch has 21 rows for one shard, its push_rows are 20"),
    ],
)
def test_rows_that_do_not_fit(pushed: dict[str, Rows], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said):
        RowTraffic(TABLES, 1).tails(pushed, None)
