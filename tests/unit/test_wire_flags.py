"""The forms in which gradients and parameters travel: how they are typed, and what a status says of them."""

from __future__ import annotations

from typing import Any

import pytest
from typed_flags import refusal, run, server

from grpc_ps.client.shared.wire_flags import what_travels


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, ""),
        ({"push_dtype": "float32", "pull_dtype": "float32", "compress": ""}, ""),
        ({"push_dtype": "bfloat16", "pull_dtype": "bfloat16"}, "bfloat16 both ways"),
        ({"push_dtype": "float16", "pull_dtype": "float32"}, "pushes in float16"),
        ({"push_dtype": "float16", "pull_dtype": "bfloat16"}, "pushes in float16, pulls in bfloat16"),
        ({"compress": "topk:0.01", "pull_dtype": "bfloat16"}, "topk:0.01, pulls in bfloat16"),
    ],
)
def test_only_what_does_not_travel_as_it_is_is_named(settings: dict[str, Any], text: str) -> None:
    assert what_travels(settings) == text


@pytest.mark.parametrize(
    ("typed", "push", "pull"),
    [
        ("--wire-dtype bfloat16", "bfloat16", "bfloat16"),
        ("--push-dtype float16", "float16", ""),
        ("--pull-dtype bfloat16", "", "bfloat16"),
        ("--wire-dtype bfloat16 --pull-dtype float32", "bfloat16", "float32"),
        ("--pull-dtype float32 --wire-dtype bfloat16", "bfloat16", "float32"),
    ],
)
def test_one_flag_says_both_types_and_either_may_be_another(typed: str, push: str, pull: str) -> None:
    stated = run(server, "--shard=1", *typed.split())
    assert (stated.push_dtype, stated.pull_dtype) == (push, pull)
    assert (stated.HasField("push_dtype"), stated.HasField("pull_dtype")) == (bool(push), bool(pull))


@pytest.mark.parametrize("flag", ["--wire-dtype", "--push-dtype", "--pull-dtype"])
def test_a_type_that_does_not_travel_is_refused(flag: str) -> None:
    said = refusal(server, "--shard=1", flag, "bfloat")
    assert said == f"{flag} bfloat: must be one of float32, bfloat16, float16 (did you mean bfloat16?)"


@pytest.mark.parametrize(
    ("typed", "setting"),
    [
        ("topk:.01", "topk:0.01"),
        ("topk:0.010", "topk:0.01"),
        ("topk:0.4", "topk:0.4"),
        ("", ""),
    ],
)
def test_a_ratio_is_written_in_one_way(typed: str, setting: str) -> None:
    stated = run(server, "--shard=1", "--compress", typed)
    assert (stated.compress, stated.HasField("compress")) == (setting, True)


@pytest.mark.parametrize("typed", ["topk:0", "topk:0.5", "topk", "0.01", "topk:-1", "topk:1e-3"])
def test_another_compression_is_refused(typed: str) -> None:
    said = refusal(server, "--shard=1", "--compress", typed)
    rule = "a decimal above 0 and below 1/2 with push_dtype float32: else pushes are not shorter"
    assert said == f"--compress {typed}: must be topk:RATIO, {rule}"


@pytest.mark.parametrize("flag", ["--push-dtype", "--wire-dtype"])
@pytest.mark.parametrize("first", [True, False])
def test_the_limit_of_a_ratio_is_that_of_the_type_in_whatever_order(flag: str, first: bool) -> None:
    typed = [[flag, "bfloat16"], ["--compress", "topk:0.4"]]
    said = refusal(server, "--shard=1", *(word for pair in (typed if first else typed[::-1]) for word in pair))
    rule = "a decimal above 0 and below 1/3 with push_dtype bfloat16: else pushes are not shorter"
    assert said == f"--compress topk:0.4: must be topk:RATIO, {rule}"
