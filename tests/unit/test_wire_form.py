"""The layouts of what travels, and the small language of `compress`."""

from __future__ import annotations

from fractions import Fraction

import pytest

from grpc_ps.client.shared.blocks import Block, ParameterSpec, place
from grpc_ps.client.shared.image import gradients_layout, values_layout
from grpc_ps.client.shared.wire_form import (
    WIRE_DTYPES,
    WireForm,
    narrow_gradients,
    narrow_values,
    parse_compress,
    pull_form,
    push_form,
    residuals_layout,
    sparse_gradients,
)
from grpc_ps.protos.job_pb2 import Settings
from grpc_ps.psserver.lead.compression import check_compress

BLOCKS = [
    Block("a", 0, 40, "float32", True),
    Block("b", 0, 3, "float64", True),
    Block("c", 0, 5, "int32", False),
    Block("d", 0, 7, "float32", False),
]


@pytest.mark.parametrize(
    ("text", "ratio"),
    [("", None), ("topk:0.01", Fraction(1, 100)), ("topk:0.49", Fraction(49, 100)), ("topk:.25", Fraction(1, 4))],
)
def test_compress_is_read_exactly(text: str, ratio: Fraction | None) -> None:
    assert parse_compress(text) == ratio


@pytest.mark.parametrize(
    "text",
    ["topk", "topk:", "topk:0", "topk:1.1", "topk:-0.1", "topk:1e-2", "top:0.1", "topk:0.1 ", "topk:nan", "topk:1"],
)
def test_other_texts_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be topk:RATIO, a decimal above 0 and below 1/2"):
        parse_compress(text)


@pytest.mark.parametrize(
    ("dtype", "below", "limit"),
    [("float32", "0.499", "0.5"), ("bfloat16", "0.332", "0.3334"), ("float16", "0.332", "0.3334")],
)
def test_a_ratio_by_which_pushes_are_not_shorter_is_refused(dtype: str, below: str, limit: str) -> None:
    blocks = [Block("w", 0, 100_000, "float32", True)]
    exact = narrow_gradients(blocks, WireForm(dtype)).total_bytes
    taken, refused = (
        sparse_gradients(blocks, WireForm(dtype, Fraction(ratio))).total_bytes for ratio in (below, limit)
    )
    assert taken < exact <= refused
    assert parse_compress(f"topk:{below}", dtype) == Fraction(below)
    with pytest.raises(ValueError, match=f"below 1/. with push_dtype {dtype}: else pushes are not shorter"):
        parse_compress(f"topk:{limit}", dtype)


@pytest.mark.parametrize(
    ("ratio", "size", "count"),
    # In floating point 0.07 * 10000 is above 700. Small blocks are sent whole.
    [
        ("0.07", 10_000, 700),
        ("0.01", 10_000, 100),
        ("0.01", 10_001, 101),
        ("0.01", 4097, 41),
        ("0.01", 4096, 4096),
        ("0.01", 1, 1),
        ("1", 5000, 5000),
        ("0.000001", 262_144, 1),
    ],
)
def test_the_part_that_is_sent_is_rounded_up(ratio: str, size: int, count: int) -> None:
    assert WireForm("float32", Fraction(ratio)).count(size) == count


def test_the_settings_say_the_form_of_each_direction() -> None:
    settings = Settings(push_dtype="bfloat16", pull_dtype="float16", compress="topk:0.25")
    assert push_form(settings) == WireForm("bfloat16", Fraction(1, 4))
    assert pull_form(settings) == WireForm("float16")
    assert push_form(Settings()) == pull_form(Settings()) == WireForm()
    assert not WireForm().lossy


def test_only_what_is_trained_in_float32_is_rounded() -> None:
    form = WireForm("bfloat16")
    release = narrow_values(BLOCKS, form)
    assert [block.dtype for block in release.blocks] == ["bfloat16", "float64", "int32", "float32"]
    # 80 bytes in the place of 160.
    assert release.offsets == (0, 128, 192, 256)
    push = narrow_gradients(BLOCKS, form)
    assert [block.dtype for block in push.blocks] == ["bfloat16", "float64", "float32"]
    assert (push.offsets, push.total_bytes) == ((0, 128, 192), 256)
    assert residuals_layout(BLOCKS, form).blocks == (BLOCKS[0],)


def test_without_rounding_the_layouts_are_those_of_the_images() -> None:
    assert narrow_values(BLOCKS, WireForm()) == values_layout(BLOCKS)
    assert narrow_gradients(BLOCKS, WireForm()) == gradients_layout(BLOCKS)


def test_the_largest_elements_are_laid_out_block_by_block() -> None:
    large = Block("e", 0, 5000, "float32", True)
    layout = sparse_gradients([*BLOCKS, large], WireForm("float16", Fraction("0.0036")))
    found = [(s.block.parameter, s.count, s.indices, s.values) for s in layout.selections]
    # Of `a` all elements, of `e` 18 indices of 4 bytes, then as many elements of 2.
    assert found == [("a", 40, 0, 0), ("b", None, 128, 128), ("d", None, 192, 192), ("e", 18, 256, 384)]
    assert layout.total_bytes == 448


def test_a_large_parameter_is_selected_from_in_blocks_of_the_placement() -> None:
    spec = ParameterSpec(name="w", shape=(300_000,), dtype="float32")
    form = WireForm("float32", Fraction("0.01"))
    one, two = place([spec], 1), place([spec], 2)
    counts = [[s.count for s in sparse_gradients(blocks, form).selections] for blocks in (*one.shards, *two.shards)]
    assert sum(counts[0]) == sum(counts[1]) + sum(counts[2])
    assert len(counts[0]) == len(counts[1]) + len(counts[2]) == len(one.shards[0])


@pytest.mark.parametrize("dtype", WIRE_DTYPES)
@pytest.mark.parametrize(
    "text", ["", "topk:0.01", "topk:.33", "topk:0.34", "topk:0.5", "topk:0", "topk:1", "topk:-1", "topk:1e-2", "all"]
)
def test_the_lead_has_the_same_rule_with_the_standard_library_alone(text: str, dtype: str) -> None:
    said = []
    for check in (parse_compress, check_compress):
        try:
            check(text, dtype)
        except ValueError as error:
            said.append(str(error))
        else:
            said.append("taken")
    assert said[0] == said[1]
