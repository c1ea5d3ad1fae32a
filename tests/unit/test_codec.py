"""The hand-made encoding is protobuf's own, byte for byte, and the decoding gives what protobuf's would."""

from __future__ import annotations

import numpy as np
import pytest
from google.protobuf.message import DecodeError, Message
from hypothesis import given
from hypothesis import strategies as st

from grpc_ps.client.shared.blocks import ITEM_BYTES, ParameterSpec
from grpc_ps.client.shared.codec import (
    ChunkView,
    attach_chunk,
    detach_chunk,
    encode_chunk,
    encode_message,
    from_proto,
    to_proto,
    word_sum,
)
from grpc_ps.protos import job_pb2, parameter_server_pb2, tensor_pb2

PushPullRequest = parameter_server_pb2.PushPullRequest
U64 = st.integers(0, 2**64 - 1)
datas = st.integers(0, 40).flatmap(lambda words: st.binary(min_size=8 * words, max_size=8 * words))

headers = st.builds(
    parameter_server_pb2.PushHeader,
    id=st.none() | st.builds(job_pb2.Identity, run=U64, generation=U64, worker=st.integers(0, 9), incarnation=U64),
    sequence=U64,
    kind=st.sampled_from([0, 1, 2]),
    batch=U64,
    total_bytes=U64,
)
requests = st.builds(PushPullRequest, header=st.none() | headers, end=st.booleans())
results = st.builds(
    parameter_server_pb2.PushResult, sequence=U64, outcome=st.sampled_from([0, 1, 2]), parameter=st.text(max_size=5)
)
answers = st.builds(
    parameter_server_pb2.Answer,
    position=U64,
    result=st.none() | results,
    release=st.none() | st.builds(parameter_server_pb2.Release, batch=U64, total_bytes=U64),
)
responses = st.builds(parameter_server_pb2.PushPullResponse, answer=st.none() | answers, end=st.booleans())
pulls = st.builds(
    parameter_server_pb2.PullResponse,
    meta=st.none() | st.builds(parameter_server_pb2.SnapshotMeta, snapshot=U64, keep_ms=st.integers(0, 9)),
    end=st.booleans(),
)
messages = st.one_of(requests, responses, pulls)


def words(data: bytes) -> int:
    return sum(int.from_bytes(data[i : i + 8], "little") for i in range(0, len(data), 8)) % 2**64


def split(data: bytes, cuts: list[int]) -> list[memoryview]:
    ends = sorted(cut % (len(data) + 1) for cut in cuts)
    return [memoryview(data)[a:b] for a, b in zip([0, *ends], [*ends, len(data)], strict=True)]


def chunk_of(offset: int, data: bytes) -> tensor_pb2.Chunk:
    return tensor_pb2.Chunk(offset=offset, sum=words(data), data=data)


@given(datas)
def test_word_sum_is_the_sum_of_little_endian_words(data: bytes) -> None:
    assert word_sum(data) == words(data)


def test_word_sum_wraps() -> None:
    assert word_sum(b"\xff" * 16) == 2**64 - 2


@given(U64, datas, st.lists(st.integers(0, 400), max_size=4))
def test_encoded_chunk_is_protobufs_own(offset: int, data: bytes, cuts: list[int]) -> None:
    assert encode_chunk(offset, split(data, cuts)) == chunk_of(offset, data).SerializeToString()


@given(messages, U64, datas, st.lists(st.integers(0, 400), max_size=4))
def test_encoded_message_is_protobufs_own(message: Message, offset: int, data: bytes, cuts: list[int]) -> None:
    expected = type(message)()
    expected.CopyFrom(message)
    expected.chunk.CopyFrom(chunk_of(offset, data))  # type: ignore[attr-defined]
    expected.chunk.SetInParent()  # type: ignore[attr-defined]
    assert attach_chunk(message, encode_chunk(offset, [data])) == expected.SerializeToString()
    assert encode_message(message, offset, split(data, cuts)) == expected.SerializeToString()


@given(messages)
def test_message_without_chunk_is_protobufs_own(message: Message) -> None:
    assert attach_chunk(message, None) == message.SerializeToString()
    assert detach_chunk(type(message), message.SerializeToString()) == (message, None)


@given(messages, U64, datas)
def test_detached_chunk_is_what_was_attached(message: Message, offset: int, data: bytes) -> None:
    wire = encode_message(message, offset, [data])
    rest, chunk = detach_chunk(type(message), wire)
    assert rest == message
    assert chunk == ChunkView(offset, words(data), memoryview(data))
    assert chunk.check()
    # Offsets of ten bytes are protobuf's to parse: no image is that long.
    assert chunk.data.obj is wire or offset >= 2**63


def test_large_chunk_is_not_copied_when_decoded() -> None:
    data = np.random.default_rng(0).bytes(1 << 20)
    wire = encode_message(PushPullRequest(end=True), 5 << 30, [data])
    assert wire == PushPullRequest(end=True, chunk=chunk_of(5 << 30, data)).SerializeToString()
    _, chunk = detach_chunk(PushPullRequest, wire)
    assert chunk is not None
    assert (chunk.offset, chunk.data.obj is wire, chunk.data == data) == (5 << 30, True, True)


def test_changed_byte_does_not_pass_the_check() -> None:
    data = bytearray(range(64))
    wire = bytearray(encode_message(PushPullRequest(), 0, [bytes(data)]))
    wire[-1] ^= 1
    _, chunk = detach_chunk(PushPullRequest, bytes(wire))
    assert chunk is not None
    assert not chunk.check()
    assert not ChunkView(0, 0, memoryview(b"123")).check()


def reference(cls: type[Message], data: bytes) -> tuple[Message, tuple[int, int, bytes] | None] | None:
    try:
        message = cls.FromString(data)
    except DecodeError:
        return None
    if not message.HasField("chunk"):
        return message, None
    chunk = message.chunk  # type: ignore[attr-defined]
    content = (chunk.offset, chunk.sum, chunk.data)
    message.ClearField("chunk")
    return message, content


def detached(cls: type[Message], data: bytes) -> tuple[Message, tuple[int, int, bytes] | None] | None:
    try:
        message, chunk = detach_chunk(cls, data)
    except ValueError:
        return None
    return message, None if chunk is None else (chunk.offset, chunk.sum, bytes(chunk.data))


# Pieces of messages, to be put together in any order, so that unusual but valid messages are common.
fragments = st.lists(
    st.one_of(
        st.builds(lambda m: m.SerializeToString(), requests),
        st.builds(lambda o, d: encode_message(PushPullRequest(), o, [d]), U64, datas),
        st.builds(lambda o, d: b"\x2a" + bytes([len(d) + 3]) + b"\x08\x05" + d[:1] + d, U64, st.binary(max_size=9)),
        st.sampled_from([b"\x2a\x00", b"\x20\x81\x00", b"\xa8\x00\x01", b"\x33\x34", b"\x2a\x04\x1a\x00\x08\x05"]),
        st.binary(max_size=6),
    ),
    max_size=4,
).map(b"".join)


@given(fragments)
def test_any_bytes_decode_as_protobuf_decodes_them(data: bytes) -> None:
    assert detached(PushPullRequest, data) == reference(PushPullRequest, data)


def test_garbage_is_a_value_error() -> None:
    with pytest.raises(ValueError, match="not a PushPullRequest"):
        detach_chunk(PushPullRequest, b"\xff\xff\xff")


@pytest.mark.parametrize("dtype", ITEM_BYTES)
def test_parameters_survive_the_wire(dtype: str) -> None:
    spec = ParameterSpec(name="layer/w", shape=(3, 0, 2), dtype=dtype, trainable=dtype == "float32")
    message = to_proto(spec)
    assert tensor_pb2.DType.Name(message.dtype) == f"DTYPE_{dtype.upper()}"
    assert from_proto(tensor_pb2.Parameter.FromString(message.SerializeToString())) == spec


def test_parameter_of_unknown_type_is_refused() -> None:
    with pytest.raises(ValueError, match="w: unknown type number 99"):
        from_proto(tensor_pb2.Parameter.FromString(b"\x0a\x01w\x18\x63"))
    with pytest.raises(ValueError, match="w: type unspecified"):
        from_proto(tensor_pb2.Parameter(name="w"))
