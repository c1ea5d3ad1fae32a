"""What a status says of the forms in which gradients and parameters travel."""

from __future__ import annotations

from typing import Any

import pytest

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
