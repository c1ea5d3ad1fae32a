"""Manifests: what is written is read, and nothing else is."""

from __future__ import annotations

import hashlib
import random

import pytest
from checkpoints import manifest

from grpc_ps.client.shared.checkpoint_manifest import Manifest


def test_a_manifest_is_what_was_written():
    written = manifest()
    assert Manifest.from_json(written.to_json()) == written


def test_b73_one_bit_anywhere_in_a_manifest():
    moments = random.Random(73)
    data = manifest().to_json().encode()
    for position in range(len(data)):
        flipped = bytearray(data)
        flipped[position] ^= 1 << moments.randrange(8)
        with pytest.raises(ValueError, match=r"."):
            Manifest.from_json(flipped.decode())


def signed(text: str) -> str:
    """The text with the checksum that fits it."""
    body, end = text[: text.rindex('"') - 64], text[text.rindex('"') :]
    return body + hashlib.sha256((body + "0" * 64 + end).encode()).hexdigest() + end


CHANGES = {
    "no field": (('"cursor": 17,\n', ""), "has no 'cursor'"),
    "more": (('"cursor"', '"more": 1, "cursor"'), "has an unknown field 'more'"),
    "negative": (('"cursor": 17', '"cursor": -1'), "'cursor' is no whole number: -1"),
    "text": (('"cursor": 17', '"cursor": "17"'), "'cursor' is no whole number: '17'"),
    "truth": (('"cursor": 17', '"cursor": true'), "'cursor' is no whole number: True"),
    "nan": (('"learning_rate_factor": 0.5', '"learning_rate_factor": NaN'), "'learning_rate_factor' is no float"),
    "run": (("1f2e3d4c5b6a7988", "1f2e"), "'run' is no number of 16 hex digits"),
    "setting": (('"mode": "sync"', '"mode": ["sync"]'), "'settings' has no plain value for 'mode'"),
    "type": (('"dtype": "float32"', '"dtype": "float8"'), "type float8 is not one of"),
    "shape": (('"shape": [\n    7\n', '"shape": [\n    -7\n'), "'shape' is no whole number: -7"),
    "parameter": (('"parameters": [', '"parameters": [1, '), "'parameters' has something that is no parameter"),
    "parts": (('"parts": [', '"parts": [1'), "'parts' has something that is no part"),
    "shards": (('"shard_count": 0', '"shard_count": 2'), "names 0 parts of 2 shards"),
    "path": (
        ('"parts": [', '"parts": [{"file": "../../secret", "bytes": 1, "sha256": ""}'),
        "'parts' names the file '../../secret'",
    ),
}


@pytest.mark.parametrize("what", CHANGES)
def test_a_manifest_that_says_something_else_is_refused(what):
    change, reason = CHANGES[what]
    text = manifest().to_json()
    assert signed(text) == text
    assert text.count(change[0]) >= 1
    with pytest.raises(ValueError, match=r".") as caught:
        Manifest.from_json(signed(text.replace(*change, 1)))
    assert reason in str(caught.value)
