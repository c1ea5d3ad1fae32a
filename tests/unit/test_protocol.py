"""The Python, the example and the bytes of protos/README.md are what the code does."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from job_driver import Driver
from protocol_page import README, listings

from grpc_ps.client.pushes import push_messages
from grpc_ps.client.shared.blocks import FLOATING, ITEM_BYTES, ParameterSpec, place
from grpc_ps.client.shared.codec import word_sum
from grpc_ps.client.shared.image import Layout, gradients_layout, values_layout
from grpc_ps.client.shared.rows import first_values
from grpc_ps.client.shared.tables import TableSpec
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.protos.job_pb2 import Identity
from grpc_ps.psserver.lead import log
from grpc_ps.psserver.messages import answer_message
from grpc_ps.psserver.snapshot import Snapshot


def test_the_contents_list_every_section() -> None:
    anchors = [
        re.sub(r"[^a-z0-9 -]", "", title.lower()).replace(" ", "-")
        for title in re.findall(r"^##+ (.*)$", re.sub(r"```.*?```", "", README, flags=re.DOTALL), re.MULTILINE)
    ]
    contents = README.split("\n## ")[0]
    assert re.findall(r"\]\(#([a-z-]+)\)", contents) == anchors
    assert set(re.findall(r"\]\(#([a-z-]+)\)", README)) == set(anchors)


@pytest.fixture(scope="module")
def page() -> dict[str, Any]:
    """The functions that the page defines."""
    defined: dict[str, Any] = {}
    for title in ("Blocks and placement", "Images and chunks", "Tables"):
        for listing in listings(title, "python"):
            exec(listing, defined)
    return defined


SHAPES = st.one_of(
    st.lists(st.integers(0, 40), max_size=3),
    st.lists(st.integers(300, 2500), min_size=2, max_size=2),
    st.sampled_from([[131072], [131073], [262144 * 16], [262144 * 16 + 1], [16384 * 16], [16384 * 16 + 1]]),
)
SPECS = st.lists(
    st.builds(
        lambda name, shape, dtype, trainable: ParameterSpec(
            name=name, shape=tuple(shape), dtype=dtype, trainable=trainable
        ),
        st.text(st.characters(exclude_categories=("Cs",)), min_size=1, max_size=6)
        | st.sampled_from(["'", '"', "'\"\\"]),
        SHAPES,
        st.sampled_from(sorted(ITEM_BYTES)),
        st.booleans(),
    ),
    max_size=8,
    unique_by=lambda spec: spec.name,
)


@given(specs=SPECS, shard_count=st.integers(1, 5))
def test_the_pages_placement_is_the_codes(page: dict[str, Any], specs: list[ParameterSpec], shard_count: int) -> None:
    placement = place(specs, shard_count)
    parameters = sorted((spec.name, spec.dtype, spec.shape, spec.trainable) for spec in specs)
    shards = page["place"](parameters, shard_count)
    assert shards == [[(block.parameter, block.start, block.stop) for block in blocks] for blocks in placement.shards]
    assert page["fingerprint"](parameters, shards) == placement.fingerprint
    dtypes = {spec.name: spec.dtype for spec in specs}
    for blocks, ours in zip(shards, placement.shards, strict=True):
        assert_same_image(page["image"](blocks, dtypes, True), values_layout(ours))
        assert_same_image(page["image"](blocks, dtypes, False), gradients_layout(ours))


def assert_same_image(shown: tuple[list[tuple[str, int, int, int]], int], layout: Layout) -> None:
    """A layout has blocks that follow each other as one; the page has all of them."""
    places, total = shown
    assert total == layout.total_bytes
    offsets = {(name, start): offset for name, start, _, offset in places}
    for block, offset in zip(layout.blocks, layout.offsets, strict=True):
        assert offsets[block.parameter, block.start] == offset
        parts = [(start, end, at) for name, start, end, at in places if name == block.parameter]
        item = ITEM_BYTES[block.dtype]
        assert all(
            at == offset + (start - block.start) * item for start, end, at in parts if block.start <= start < block.stop
        )


@given(
    st.lists(
        st.builds(TableSpec, spread=st.floats(0, 10), lazy=st.booleans(), push_rows=st.integers(1, 2**20)), max_size=3
    )
)
def test_the_pages_fingerprint_of_tables_is_the_codes(page: dict[str, Any], tables: list[TableSpec]) -> None:
    specs = [
        ParameterSpec(name=f"t'{number}", shape=(9, 4), dtype="float32", table=table)
        for number, table in enumerate(tables)
    ]
    specs.append(ParameterSpec(name="w", shape=(3,), dtype="float64"))
    placement = place(specs, 2)
    parameters = sorted((spec.name, spec.dtype, spec.shape, spec.trainable) for spec in specs)
    told = [(f"t'{n}", it.spread, it.lazy, it.push_rows, it.capacity) for n, it in enumerate(tables)]
    dense = [parameter for parameter in parameters if parameter[0] == "w"]
    assert page["fingerprint"](parameters, page["place"](dense, 2), told) == placement.fingerprint


@given(st.integers(0, 2**64 - 1), st.integers(0, 2**45), st.integers(0, 63), st.floats(0, 100, width=32))
def test_the_pages_first_values_are_the_codes(
    page: dict[str, Any], seed: int, row: int, column: int, spread: float
) -> None:
    spec = ParameterSpec(name="é t", shape=(2**46, 64), dtype="float32", table=TableSpec(spread=spread))
    found = first_values(spec, seed, np.array([row]))[0, column]
    assert page["first_value"](seed, "é t", 64, row, column, spread) == float(found)


@given(st.binary(max_size=40).map(lambda data: data * 64))
def test_the_pages_sum_is_the_codes(page: dict[str, Any], data: bytes) -> None:
    assert page["chunk_sum"](data) == word_sum(data)


def test_the_pages_types_are_the_codes(page: dict[str, Any]) -> None:
    assert (page["ITEM_BYTES"], page["FLOATING"]) == (dict(ITEM_BYTES), set(FLOATING))


def test_the_example_of_a_placement() -> None:
    (listing,) = listings("An example of a placement")
    specs = [
        ParameterSpec(name=name, shape=tuple(map(int, re.findall(r"\d+", shape))), dtype=dtype, trainable=not no)
        for name, dtype, shape, no in re.findall(
            r"^parameter (\w+) +(\w+) +\[(.*?)\] +(not )?trainable$", listing, re.M
        )
    ]
    assert len(specs) == 6
    placement = place(specs, 2)
    for shard, text in enumerate(listing.split("\nshard ")[1:]):
        shown = re.findall(r"^(\w+) +(\d+) to (\d+) +(\d+) +(\d+) +(\d+|-)$", text, re.M)
        totals = re.search(r"^total +(\d+) +(\d+)$", text, re.M)
        values, pushed = (list(offsets(placement.shards[shard], every)) for every in (True, False))
        expected = [
            (block.parameter, *map(str, (block.start, block.stop, block.nbytes, at)), "-" if on is None else str(on))
            for block, at, on in zip(placement.shards[shard], values, pushed, strict=True)
        ]
        assert shown == expected
        layouts = values_layout(placement.shards[shard]), gradients_layout(placement.shards[shard])
        assert totals is not None
        assert totals.groups() == tuple(str(layout.total_bytes) for layout in layouts)
    assert listing.splitlines()[-1] == f"fingerprint {placement.fingerprint}"


def offsets(blocks: Any, every: bool) -> Iterator[int | None]:
    end = 0
    for block in blocks:
        if every or block.floating:
            yield end
            end += -(-block.nbytes // 64) * 64
        else:
            yield None


def the_steps() -> list[tuple[int, log.Entry]]:
    """What the lead writes in the page's example: one worker opens the job and pushes twice."""
    driver = Driver(learning_rate=0.5)
    worker = driver.join(1)
    driver.push(worker, values=True)
    for _ in range(2):
        driver.push(worker, examples=4)
    return list(driver.job.log.after(0))


def described(entry: log.Entry) -> str:
    match entry:
        case log.Admit(worker, incarnation):
            return f"admit W{worker} {incarnation}"
        case log.Open(push):
            return f"open W{push.worker} {push.incarnation} {push.sequence}"
        case log.Apply(step, ((push, weight),), rate, ()):
            name = f"W{push.worker} {push.incarnation} {push.sequence}"
            return f"apply step {step} {name} weight {weight:g} rate {rate:g}"
        case log.Answer(worker, _, step, log.Result() as result, log.Release(batch, hint), None):
            told = f"{result.outcome} {result.sequence} release {batch} hint {hint}"
            return f"answer W{worker} step {step} {told}"
    raise AssertionError(entry)


def shown_bytes(listing: str) -> bytes:
    """A listing's hexadecimal pairs, "00 ... 00" standing for the padding."""
    shown = b""
    for line in listing.splitlines():
        pairs = re.match(r"\s*((?:[0-9a-f]{2} )*[0-9a-f]{2})(?:\s{2,}|$)", line)
        assert pairs or "..." in line, line
        shown += bytes.fromhex(pairs[1]) if pairs else bytes(60)
    return shown


def test_what_the_lead_writes_in_the_worked_step() -> None:
    lines = [f"{position} {described(entry)}" for position, entry in the_steps()]
    assert listings("Bytes")[0].splitlines() == lines


def test_the_bytes_of_the_worked_step() -> None:
    identity = Identity(run=1, generation=1, worker=0, incarnation=1)
    (blocks,) = place([ParameterSpec(name="w", shape=(), dtype="float32")], 1).shards
    header = wire.PushHeader(
        id=identity, sequence=3, kind=wire.PushHeader.KIND_GRADIENTS, base_step=1, batch=1, examples=4, total_bytes=64
    )
    (push,) = push_messages(header, gradients_layout(blocks), 1 << 20, [memoryview(struct.pack("<f", 1.0))])
    position, entry = the_steps()[-1]
    assert isinstance(entry, log.Answer)
    head = wire.PushPullResponse(answer=answer_message(entry, generation=1, position=position, total_bytes=64))
    w = 0.0 - 2 * 0.5 * 1.0
    snapshot = Snapshot(values_layout(blocks), [memoryview(struct.pack("<f60x", w))], 1 << 20, entry.step)
    (answer,) = snapshot.messages(head, wire.PushPullResponse)
    others = (
        wire.PushPullRequest(attach=wire.Attach(id=identity)),
        wire.PushPullResponse(attached=wire.Attached(boot=1)),
        wire.PushPullRequest(ask=wire.Ask(id=identity)),
    )
    sent = [push, answer, *(message.SerializeToString() for message in others)]
    assert [shown_bytes(listing) for listing in listings("Bytes")[1:]] == sent


def test_the_lengths_that_the_listings_tell() -> None:
    told = re.findall(r"([0-9a-f]{2})\s{2,}\w.*?, (\d+) bytes$", "".join(listings("Bytes")), re.MULTILINE)
    assert len(told) == 14
    assert [int(length, 16) for length, _ in told] == [int(number) for _, number in told]
