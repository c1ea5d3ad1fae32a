"""What pushes keep back: with what was sent it is what was to be sent, whatever the form, the chunks and the shards."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import ml_dtypes
import numpy as np
import pytest

from grpc_ps.client.feedback import Feedback
from grpc_ps.client.shared import wire_form
from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.image import Layout, aligned_buffer, block_views, gradients_layout
from grpc_ps.client.shared.wire_form import WireForm
from grpc_ps.psserver.unpacking import unpacking

SPECS = [
    ParameterSpec(name="a", shape=(150_000,), dtype="float32"),
    ParameterSpec(name="b", shape=(3,), dtype="float64"),
    ParameterSpec(name="c", shape=(7,), dtype="float32"),
    ParameterSpec(name="d", shape=(9,), dtype="float32", trainable=False),
]
FORMS = [
    WireForm("bfloat16"),
    WireForm("float16"),
    WireForm("float32", Fraction("0.01")),
    WireForm("bfloat16", Fraction("0.25")),
    WireForm("float16", Fraction(1)),
]
Arrays = dict[str, np.ndarray]


def gradients(seed: int) -> Arrays:
    """Numbers of few bits, so that their sums are exact."""
    rng = np.random.default_rng(seed)
    return {s.name: (rng.integers(-(2**15), 2**15, s.shape) / 2**10).astype(s.dtype) for s in SPECS}


def flat(arrays: Arrays) -> dict[str, memoryview]:
    return {name: array.reshape(-1).view(np.uint8).data for name, array in arrays.items()}


def gaps(layout: Layout) -> np.ndarray:
    """The bytes of an image that are of no block."""
    outside = np.ones(layout.total_bytes, bool)
    for block, offset in zip(layout.blocks, layout.offsets, strict=True):
        outside[offset : offset + block.nbytes] = False
    return outside


class Shards:
    """A worker's pushes and what the shards make of them."""

    def __init__(self, form: WireForm, shards: int, chunk_bytes: int = 64 * 1024) -> None:
        self.blocks = place(SPECS, shards).shards
        self.feedback = Feedback(self.blocks, form)
        self._chunk_bytes = chunk_bytes
        self._layouts = [gradients_layout(blocks) for blocks in self.blocks]
        self._images = [aligned_buffer(layout.total_bytes) for layout in self._layouts]
        for image in self._images:
            image[...] = 0xFF
        self._unpackings = [
            unpacking(blocks, form, layout, image)
            for blocks, layout, image in zip(self.blocks, self._layouts, self._images, strict=True)
        ]

    def encoded(self, shard: int, arrays: Arrays) -> bytes:
        part = self.feedback.part(shard, flat(arrays), self._chunk_bytes)
        chunks = [
            b"".join(map(bytes, part.pieces(at, min(self._chunk_bytes, part.total_bytes - at))))
            for at in range(0, part.total_bytes, self._chunk_bytes)
        ]
        return b"".join(chunks)

    def decoded(self, encoded: Sequence[bytes], chunk_bytes: int = 64) -> Arrays:
        """What the shards make of a push that comes in chunks of another size."""
        arrays = {spec.name: np.full(spec.size, np.nan, spec.dtype) for spec in SPECS}
        for data, unpack, layout, image in zip(encoded, self._unpackings, self._layouts, self._images, strict=True):
            assert unpack is not None
            assert unpack.total_bytes == len(data)
            filled = 0
            for at in range(0, len(data), chunk_bytes):
                end = unpack.take(at, data[at : at + chunk_bytes])
                assert filled <= end <= layout.total_bytes
                filled = end
            assert unpack.finish() == ""
            assert not np.any(image[gaps(layout)])
            for block, view in zip(layout.blocks, block_views(layout, image), strict=True):
                arrays[block.parameter][block.start : block.stop] = view
        return arrays

    def push(self, arrays: Arrays) -> Arrays:
        return self.decoded([self.encoded(shard, arrays) for shard in range(len(self.blocks))], 64 * 100)

    def rest(self, *, applied: bool) -> Arrays:
        arrays = {name: np.zeros(array.size, np.float32) for name, array in self.feedback.old.items()}
        for shard in range(len(self.blocks)):
            layout = self.feedback.layout(shard)
            for block, data in zip(layout.blocks, self.feedback.kept(shard, applied=applied), strict=True):
                arrays[block.parameter][block.start : block.stop] = data.view(np.float32)
        return arrays


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("shards", [1, 2, 3])
def test_what_was_sent_and_what_is_left_are_what_was_to_be_sent(form: WireForm, shards: int) -> None:
    bed = Shards(form, shards)
    total = {spec.name: np.zeros(spec.size, spec.dtype) for spec in SPECS}
    sent = {spec.name: np.zeros(spec.size, spec.dtype) for spec in SPECS}
    for seed in range(5):
        arrays = gradients(seed)
        for name, array in bed.push(arrays).items():
            sent[name] += array
            total[name] += arrays[name]
        bed.feedback.keep()
    rest = bed.rest(applied=False)
    assert rest.keys() == {"a", "c"}
    for name in total:
        assert np.array_equal(sent[name] + rest.get(name, 0), total[name]), name
    assert np.any(rest["a"])


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_the_same_is_sent_to_any_number_of_shards_in_any_chunks(form: WireForm) -> None:
    beds = [Shards(form, shards, chunk) for shards, chunk in ((1, 1 << 20), (2, 64 * 1024), (3, 64))]
    for seed in range(2):
        pushed = [bed.push(gradients(seed)) for bed in beds]
        for name in pushed[0]:
            assert pushed[0][name].tobytes() == pushed[1][name].tobytes() == pushed[2][name].tobytes()
        for bed in beds:
            bed.feedback.keep()


@pytest.mark.parametrize("form", FORMS, ids=str)
def test_a_push_that_is_sent_again_or_not_applied_leaves_what_was_there(form: WireForm) -> None:
    bed = Shards(form, 1)
    bed.push(gradients(1))
    bed.feedback.keep()
    before = bed.rest(applied=False)
    first = bed.encoded(0, gradients(2))
    assert bed.encoded(0, gradients(2)) == first
    behind = bed.rest(applied=True)
    for name, array in bed.rest(applied=False).items():
        assert np.array_equal(array, before[name])
    # As LATE leaves it: another gradient goes with the same rest.
    bed.encoded(0, gradients(3))
    assert bed.encoded(0, gradients(2)) == first
    bed.feedback.keep()
    for name, array in bed.rest(applied=False).items():
        assert np.array_equal(array, behind[name])


def test_the_numbers_of_one_push_by_hand(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire_form, "SMALL_BLOCK", 0)
    specs = [ParameterSpec(name="w", shape=(5,), dtype="float32")]
    blocks = place(specs, 1).shards
    w = np.array([1 + 2**-9, -3, 2, 3, 0.5], np.float32)
    rounding = Feedback(blocks, WireForm("bfloat16"))
    part = rounding.part(0, {"w": w.view(np.uint8).data}, 64)
    image = bytes(part.pieces(0, 64)[0])
    assert np.frombuffer(image[:10], ml_dtypes.bfloat16).astype(float).tolist() == [1, -3, 2, 3, 0.5]
    assert image[10:] == bytes(54)
    assert rounding.new["w"].tolist() == [2**-9, 0, 0, 0, 0]
    choosing = Feedback(blocks, WireForm("float32", Fraction("0.4")))
    part = choosing.part(0, {"w": w.view(np.uint8).data}, 64)
    image = bytes(part.pieces(0, 128)[0])
    assert np.frombuffer(image[:8], np.uint32).tolist() == [1, 3]
    assert np.frombuffer(image[64:72], np.float32).tolist() == [-3, 3]
    assert choosing.new["w"].tolist() == [1 + 2**-9, 0, 2, 0, 0.5]


@pytest.mark.parametrize("form", FORMS, ids=str)
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_arrives(form: WireForm, bad: float) -> None:
    bed = Shards(form, 2)
    arrays = gradients(0)
    arrays["a"][149_999] = bad
    assert np.array_equal(bed.push(arrays)["a"][-1:], np.array([bad], np.float32), equal_nan=True)
    # It was refused, and leaves no trace.
    assert not any(np.any(array) for array in bed.rest(applied=False).values())


@pytest.mark.parametrize("spoilt", [2**32 - 1, 16384, 0])
def test_indices_that_do_not_rise_are_refused(spoilt: int) -> None:
    bed = Shards(WireForm("float32", Fraction("0.5")), 1)
    image = bytearray(bed.encoded(0, gradients(0)))
    image[4:8] = spoilt.to_bytes(4, "little")
    unpack = bed._unpackings[0]
    assert unpack is not None
    unpack.take(0, image)
    assert unpack.finish() == "the indices in block 0 to 16384 of a do not rise, or are not below 16384"
