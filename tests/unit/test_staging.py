"""Places of workers: memory is fixed when a stream attaches, a push is visible when whole, and decided once."""

from __future__ import annotations

from typing import Any

import pytest
from staged_pushes import CHUNK, LAYOUT, NEW, OLD, PLAN, SPECS, attached, begin, chunk, fill, header, image, whole
from updated_shards import plan_of

from grpc_ps.client.shared.errors import Full, InvalidPush, Mismatch
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver import staging as staging_module
from grpc_ps.psserver.staging import Staging, key_of


def test_a_declared_length_that_is_not_the_images_is_refused_and_takes_no_memory() -> None:
    staging = attached()
    before = staging.bytes()
    wrong = header()
    wrong.total_bytes = 1 << 60
    with pytest.raises(InvalidPush, match="the image has 256"):
        staging.begin(wrong)
    assert staging.bytes() == before == 256


def test_memory_is_taken_when_a_stream_attaches_and_given_back_when_it_ends() -> None:
    staging = Staging(CHUNK)
    assert staging.bytes() == 0
    staging.attach(0, 1, PLAN, OLD)
    assert staging.bytes() == LAYOUT.total_bytes
    part = begin(staging)
    part.write(chunk(0, b"\0" * 64))
    assert staging.bytes() == LAYOUT.total_bytes
    staging.detach(0, 1, OLD)
    assert staging.bytes() == 0
    assert part.dropped


def test_the_opener_has_room_for_all_values_and_nobody_else_may_send_any() -> None:
    staging = Staging(CHUNK)
    staging.attach(0, 1, PLAN, OLD, opening=True)
    staging.attach(1, 2, PLAN, NEW)
    assert PLAN.values.total_bytes == LAYOUT.total_bytes + 64
    assert staging.bytes() == PLAN.values.total_bytes + LAYOUT.total_bytes
    values = header()
    values.kind, values.total_bytes = PushHeader.KIND_VALUES, PLAN.values.total_bytes
    part = staging.begin(values)
    assert part is not None
    assert [block.dtype.name for block in part.image.blocks] == ["float32", "float64", "int32"]
    values.id.worker, values.id.incarnation = 1, 2
    with pytest.raises(InvalidPush, match="push 1 of worker 1: only the opener sends values"):
        staging.begin(values)


def test_a_place_that_cannot_be_had_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_memory(nbytes: int) -> Any:
        raise MemoryError

    staging = Staging(CHUNK)
    monkeypatch.setattr(staging_module, "aligned_buffer", no_memory)
    with pytest.raises(Full, match="no memory for the pushes of worker 3: 256 bytes"):
        staging.attach(3, 1, PLAN, OLD)
    assert staging.bytes() == 0


def test_a_stream_that_takes_over_drops_what_the_old_one_left_and_outlives_it() -> None:
    staging = attached()
    old = begin(staging)
    old.write(chunk(0, b"\1" * 64))
    staging.attach(0, 1, PLAN, NEW)
    assert old.dropped
    new = begin(staging)
    staging.detach(0, 1, OLD)
    assert not new.dropped
    fill(new, image())
    new.finish()
    assert staging.whole((0, 1, 1)) is new
    assert staging.bytes() == LAYOUT.total_bytes


def test_another_job_over_a_push_that_is_whole_is_refused() -> None:
    staging = attached()
    whole(staging)
    with pytest.raises(Mismatch, match="another job than the one push 1 of worker 0 was for"):
        staging.attach(0, 1, plan_of(SPECS[:1]), NEW)
    assert staging.whole((0, 1, 1)) is not None


def test_a_job_that_is_described_anew_before_it_is_open_has_its_own_place() -> None:
    staging = attached()
    part = begin(staging)
    staging.attach(0, 1, plan_of(SPECS[:1]), NEW)
    assert part.dropped
    assert staging.bytes() == 192


def test_a_whole_push_survives_its_stream_and_is_not_taken_twice() -> None:
    staging = attached()
    part = whole(staging)
    staging.detach(0, 1, OLD)
    assert staging.held(0, 1) == 1
    staging.attach(0, 1, PLAN, NEW)
    assert staging.begin(header()) is None
    with pytest.raises(InvalidPush, match="not decided yet"):
        staging.begin(header(sequence=2))
    assert staging.all_whole() == [part.whole]


def test_a_whole_push_without_a_stream_is_freed_when_it_is_decided() -> None:
    staging = attached()
    part = whole(staging)
    staging.detach(0, 1, OLD)
    assert staging.bytes() == LAYOUT.total_bytes
    staging.forget(key_of(part.header))
    assert staging.bytes() == 0


def test_dismissal_keeps_only_the_push_that_is_in_a_round_until_it_is_decided() -> None:
    staging = attached()
    whole(staging)
    staging.dismiss(0, 1, keep=1)
    staging.detach(0, 1, OLD)
    assert staging.held(0, 1) == 1
    # The next life of that worker has a place of its own meanwhile.
    staging.attach(0, 2, PLAN, NEW)
    assert staging.bytes() == 2 * LAYOUT.total_bytes
    begin(staging, incarnation=2)
    staging.forget((0, 1, 1))
    assert staging.whole((0, 1, 1)) is None
    assert staging.bytes() == LAYOUT.total_bytes


@pytest.mark.parametrize("finished", [False, True])
def test_dismissal_drops_everything_else(finished: bool) -> None:
    staging = attached()
    part = begin(staging)
    if finished:
        fill(part, image())
        part.finish()
    staging.dismiss(0, 1)
    assert part.dropped
    assert (staging.held(0, 1), staging.bytes()) == (0, 0)
    staging.detach(0, 1, OLD)
    assert staging.all_whole() == []


def test_memory_is_reused_from_push_to_push() -> None:
    staging = attached()
    first = whole(staging)
    before = first.image.blocks[0].ctypes.data
    staging.forget(key_of(first.header))
    assert begin(staging, sequence=2).image.blocks[0].ctypes.data == before


def test_a_push_that_is_decided_is_not_taken_again_over_a_new_stream() -> None:
    staging = attached()
    part = whole(staging)
    staging.forget(key_of(part.header))
    staging.detach(0, 1, OLD)
    assert staging.held(0, 1) == 1
    staging.attach(0, 1, PLAN, NEW)
    assert staging.begin(header()) is None
    assert staging.begin(header(sequence=2)) is not None


def test_a_push_that_is_decided_in_its_middle_is_dropped_and_not_taken_again() -> None:
    staging = attached()
    part = begin(staging)
    part.write(chunk(0, b"\0" * 64))
    staging.forget(key_of(part.header))
    assert part.dropped
    assert staging.held(0, 1) == 1
    assert staging.begin(header()) is None
    second = begin(staging, sequence=2)
    # An answer to the first, given again, is no answer to the second.
    staging.forget(key_of(part.header))
    assert not second.dropped
    fill(second, image())
    second.finish()
    assert staging.whole((0, 1, 2)) is second


def test_a_push_that_is_decided_before_it_begins_is_not_taken() -> None:
    staging = attached()
    staging.forget((0, 1, 1))
    assert staging.begin(header()) is None
    assert begin(staging, sequence=2).header.sequence == 2


@pytest.mark.parametrize("sequence", [0, 2, 1000])
def test_numbers_rise_by_one(sequence: int) -> None:
    with pytest.raises(InvalidPush, match=f"push {sequence} of worker 0: expected number 1"):
        attached().begin(header(sequence=sequence))


def test_a_new_life_begins_from_one() -> None:
    staging = attached(incarnation=2)
    staging.forget((0, 1, 9))
    assert staging.held(0, 2) == 0
    assert staging.begin(header(incarnation=2)) is not None
