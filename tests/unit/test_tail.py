"""Rows behind the image of a push: taken whole, and refused where they cannot be."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import pytest
from staged_pushes import CHUNK, OLD, chunk, header
from table_worker import table
from updated_shards import plan_of

from grpc_ps.client.row_traffic import RowTraffic, Wants
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.codec import word_sum
from grpc_ps.client.shared.errors import Corrupt, Full, InvalidPush
from grpc_ps.client.shared.image import chunk_spans
from grpc_ps.client.shared.rows import Rows
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver import tail as tail_module
from grpc_ps.psserver.part import Part
from grpc_ps.psserver.staging import Staging
from grpc_ps.psserver.tail import ShardTables, WantsPart

# One block on each shard.
DENSE = [ParameterSpec(name=name, shape=(40,), dtype="float32") for name in ("a", "b")]
TABLES = [table("t", 40, 3), table("u", 1000, 8, push_rows=20)]
SPECS = [*DENSE, *TABLES]
IMAGE = 192


def rows(ids: Sequence[int], dim: int, value: float = 1.0) -> Rows:
    return Rows(np.array(ids, np.int64), np.full((len(ids), dim), value, np.float32))


PUSHED = {"t": rows([1, 7, 9], 3), "u": rows([3, 999], 8, 2.0)}
WANTED = Wants(7, {"t": np.array([5, 11]), "u": np.array([1])})


def pushed(shards: int = 2, shard: int = 1, pushed: dict[str, Rows] = PUSHED, wants: Wants | None = WANTED):
    """The header and the bytes of a push to one shard."""
    tails = RowTraffic(TABLES, shards).tails(pushed, wants)
    assert tails is not None
    begin = header()
    begin.total_bytes = IMAGE
    tails[shard].mark(begin)
    return begin, np.frombuffer(
        b"".join([bytes(IMAGE), *tails[shard].pieces(0, tails[shard].total_bytes)]), np.uint8
    ).copy()


def staging_of(shard: int = 1, shards: int = 2, **stated: object) -> Staging:
    staging = Staging(CHUNK)
    staging.attach(0, 1, plan_of(SPECS, shard, shards, **stated), OLD)
    return staging


def written(staging: Staging, begin: PushHeader, data: np.ndarray, step: int = 64) -> Part:
    part = staging.begin(begin)
    assert part is not None

    class Whole:
        total_bytes = len(data)

    for offset, nbytes in chunk_spans(Whole(), step):
        part.write(chunk(offset, data[offset : offset + nbytes].tobytes()))
    return part


@pytest.mark.parametrize("step", [64, 320, 1 << 20])
def test_rows_and_wants_arrive_behind_the_image(step: int) -> None:
    staging = staging_of()
    part = written(staging, *pushed(), step)
    report = part.finish()
    assert (report.non_finite, list(report.squares)) == ("", [])
    tail = part.image.tail
    assert tail is not None
    assert [some.ids.tolist() for some in tail.rows] == [[1, 7, 9], [3, 999]]
    assert [np.unique(some.values).tolist() for some in tail.rows] == [[1.0], [2.0]]
    assert part.wanted is not None
    assert part.wanted.batch == 7
    assert [ids.tolist() for ids in part.wanted.ids] == [[5, 11], [1]]


def test_squares_are_reported_where_norms_are_clipped() -> None:
    report = written(staging_of(global_clip_norm=1.0), *pushed()).finish()
    # The block of this shard, then two numbers a table.
    assert list(report.squares) == [0.0, 9.0, 0.0, 64.0, 0.0]


def test_memory_is_set_aside_and_given_back() -> None:
    staging = staging_of()
    size = staging.bytes()
    # Ids and gradients of all 20 rows of `t` on this shard and of 20 of `u`, and ids of as many wanted ones.
    assert size == IMAGE + (192 + 256) + (192 + 640) + 2 * 192
    written(staging, *pushed()).finish()
    assert staging.bytes() == size
    staging.forget((0, 1, 1))
    staging.detach(0, 1, OLD)
    assert staging.bytes() == 0


def test_a_nan_is_reported_by_its_table() -> None:
    bad = {"t": rows([1], 3), "u": rows([3], 8, np.nan)}
    assert written(staging_of(), *pushed(pushed=bad)).finish().non_finite == "u"


def changed(ids: Sequence[int]) -> Iterator[np.ndarray]:
    begin, data = pushed(wants=None)
    data[IMAGE : IMAGE + 24].view(np.int64)[...] = ids
    yield begin
    yield data


@pytest.mark.parametrize(
    ("ids", "said"),
    [
        ([7, 1, 9], "push 1 of worker 0: table t: ids must rise, and be from 0 to 39"),
        ([7, 7, 9], "ids must rise"),
        ([-1, 7, 9], "from 0 to 39"),
        ([1, 7, 41], "from 0 to 39"),
        ([1, 7, 8], "table t: ids must be 1 modulo 2, the number of shards"),
        ([1, 7, 2**62 + 1], "from 0 to 39"),
    ],
)
def test_hostile_ids_are_refused(ids: list[int], said: str) -> None:
    begin, data = changed(ids)
    part = written(staging_of(), begin, data)  # type: ignore[arg-type]
    with pytest.raises(InvalidPush, match=said):
        part.finish()
    assert part.whole is None


def test_hostile_wanted_ids_are_refused() -> None:
    begin, data = pushed()
    data[-64:-56].view(np.int64)[...] = 2
    with pytest.raises(InvalidPush, match="table u: ids must be 1 modulo 2"):
        written(staging_of(), begin, data).finish()


@pytest.mark.parametrize(
    ("counts", "wanted", "said"),
    [
        ([3], [], "rows of 1 tables, the job has 2"),
        ([3, 2, 0], [], "rows of 3 tables, the job has 2"),
        ([21, 0], [], "21 rows of table t, at most 20 on this shard"),
        ([0, 21], [], "21 rows of table u, at most 20 on this shard"),
        ([2**32 - 1, 0], [], "4294967295 rows of table t"),
        ([0, 0], [0, 21], "21 rows of table u, at most 20"),
        ([3, 2], [], "256 bytes declared"),
    ],
)
def test_counts_that_cannot_be_take_no_memory(counts: list[int], wanted: list[int], said: str) -> None:
    staging = staging_of()
    before = staging.bytes()
    begin = header()
    begin.rows.extend(counts)
    begin.wanted_rows.extend(wanted)
    begin.total_bytes = 256
    with pytest.raises(InvalidPush, match=said):
        staging.begin(begin)
    assert staging.bytes() == before


def test_a_push_without_rows_is_one() -> None:
    begin = header()
    begin.total_bytes = IMAGE
    part = written(staging_of(0), begin, np.zeros(IMAGE, np.uint8))
    part.finish()
    assert part.wanted is None
    assert part.image.tail is not None
    assert [len(some.ids) for some in part.image.tail.rows] == [0, 0]


def test_a_push_that_ends_within_its_rows_is_not_whole() -> None:
    begin, data = pushed()
    part = written(staging_of(), begin, data[:-64])
    with pytest.raises(InvalidPush, match=f"ended after {len(data) - 64} of {len(data)} bytes"):
        part.finish()


def wants(counts: Sequence[int], total: int) -> PushHeader:
    return PushHeader(kind=PushHeader.KIND_WANTS, wanted_batch=4, wanted_rows=counts, total_bytes=total)


HAVE = ShardTables(tuple(TABLES), 1, 2)


def test_wants_without_a_push() -> None:
    part = WantsPart(wants([2, 0], 64), HAVE)
    data = np.zeros(64, np.uint8)
    data.view(np.int64)[:2] = [5, 11]
    part.write(chunk(0, data.tobytes()))
    part.finish()
    assert part.wanted is not None
    assert (part.wanted.batch, [ids.tolist() for ids in part.wanted.ids]) == (4, [[5, 11], []])


def test_wants_that_cannot_be() -> None:
    with pytest.raises(InvalidPush, match="21 rows of table u"):
        WantsPart(wants([0, 21], 192), HAVE)
    with pytest.raises(InvalidPush, match="64 bytes declared, the ids have 128"):
        WantsPart(wants([2, 2], 64), HAVE)
    data = np.array([4, 0, 0, 0, 0, 0, 0, 0]).tobytes()
    part = WantsPart(wants([1, 0], 64), HAVE)
    with pytest.raises(InvalidPush, match="expected one at 0"):
        part.write(chunk(64, data))
    with pytest.raises(Corrupt, match="the sum of the chunk at 0 is wrong"):
        part.write(chunk(0, data, word_sum(data) + 1))
    with pytest.raises(InvalidPush, match="ended after 0 of 64 bytes"):
        part.finish()
    part.write(chunk(0, data))
    with pytest.raises(InvalidPush, match="wanted rows: table t: ids must be 1 modulo 2"):
        part.finish()


def test_no_memory_for_rows_is_refused_with_their_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(nbytes: int) -> np.ndarray:
        raise MemoryError

    monkeypatch.setattr(tail_module, "paged_buffer", no_memory)
    # 20 rows of t and 20 of u, each with its id, and as many ids.
    bytes_of_rows = 192 + 256 + 192 + 640 + 192 + 192
    with pytest.raises(Full, match=f"no memory for the pushes of worker 0: {IMAGE + bytes_of_rows} bytes"):
        staging_of()
