"""Messages with chunks, encoded and decoded by hand, and protobuf <-> our own types.

protobuf copies a message's bytes field once when it is set, once when the message is serialised and once when it is
parsed. Here encoding copies once and decoding not at all. In every message with a `chunk` that field is the last
one, so a message is its other fields as protobuf writes them, then the chunk; tests show that the bytes are
protobuf's own. Whatever protobuf would accept but does not write itself is left to protobuf.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TypeVar

import numpy as np
from google.protobuf.message import DecodeError, Message

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.image import Buffer
from grpc_ps.client.shared.tables import TableSpec
from grpc_ps.protos import tensor_pb2

AnyMessage = TypeVar("AnyMessage", bound=Message)

_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_MASK = (1 << 64) - 1
# Bytes of a word of the sum.
_WORD = 8
_WORDS = np.dtype("<u8")
# Bytes below which Python's own loop is done before numpy has begun.
_SHORT = 64
# Fields of Chunk, as tags.
_OFFSET_TAG, _SUM_TAG, _DATA_TAG = 1 << 3 | _VARINT, 2 << 3 | _FIXED64, 3 << 3 | _BYTES


def word_sum(data: Buffer) -> int:
    """Returns the sum modulo 2^64 of the little-endian 64-bit words of `data`; its length is a multiple of 8."""
    return int(np.add.reduce(np.frombuffer(data, _WORDS)))


def _parts_sum(parts: Sequence[Buffer]) -> int:
    """Returns `word_sum` of the parts put together; a word may lie across two of them."""
    total = 0
    phase = 0
    for part in parts:
        size = len(part)
        if not (phase or size % _WORD):
            # Padding is short and zero; numpy takes longer to begin than this.
            if size > _SHORT or any(part):
                total += word_sum(part)
        else:
            total += _ragged_sum(memoryview(part), phase)
            phase = (phase + size) % _WORD
    return total & _MASK


def _ragged_sum(part: memoryview, phase: int) -> int:
    """Returns the sum of a part that begins `phase` bytes into a word."""
    head = min(len(part), -phase % _WORD)
    end = head + (len(part) - head) // _WORD * _WORD
    ends = (int.from_bytes(part[:head], "little") << 8 * phase) + int.from_bytes(part[end:], "little")
    return ends + word_sum(part[head:end])


def _varint(value: int) -> bytes:
    if value < 0x80:
        return bytes((value,))
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _chunk_pieces(offset: int, parts: Sequence[Buffer]) -> tuple[list[Buffer], int]:
    """Returns the body of a Chunk in pieces, and its length."""
    size = sum(map(len, parts))
    total = _parts_sum(parts)
    head = b""
    if offset:
        head += bytes((_OFFSET_TAG,)) + _varint(offset)
    if total:
        head += bytes((_SUM_TAG,)) + total.to_bytes(8, "little")
    if size:
        head += bytes((_DATA_TAG,)) + _varint(size)
    return [head, *parts], len(head) + size


def encode_chunk(offset: int, parts: Sequence[Buffer]) -> bytes:
    """Encodes the body of a message Chunk whose data is the parts put together. One copy.

    For chunks that go to many receivers; see `encode_message` for those that go to one.
    """
    pieces, _ = _chunk_pieces(offset, parts)
    return b"".join(pieces)


def attach_chunk(message: Message, body: bytes | None) -> bytes:
    """Serialises `message`, which has no chunk, with an encoded chunk as its last field. One copy of the body."""
    prefix = message.SerializeToString()
    if body is None:
        return prefix
    return b"".join((prefix, _chunk_tag(type(message)), _varint(len(body)), body))


def encode_message(message: Message, offset: int, parts: Sequence[Buffer]) -> bytes:
    """Does `attach_chunk(message, encode_chunk(offset, parts))` with one copy instead of two."""
    pieces, size = _chunk_pieces(offset, parts)
    return b"".join([message.SerializeToString(), _chunk_tag(type(message)), _varint(size), *pieces])


def _chunk_tag(cls: type[Message]) -> bytes:
    number: int = cls.DESCRIPTOR.fields_by_name["chunk"].number
    return _varint(number << 3 | _BYTES)


@dataclass(frozen=True, slots=True)
class ChunkView:
    """A received chunk; `data` is a view into the message's bytes."""

    offset: int
    sum: int
    data: memoryview

    def check(self) -> bool:
        """Returns whether the sum fits the data; a length that is no multiple of 8 never does."""
        return len(self.data) % _WORD == 0 and word_sum(self.data) == self.sum


class _Unusual(Exception):
    """The bytes are not as protobuf writes them."""


def detach_chunk(cls: type[AnyMessage], data: bytes) -> tuple[AnyMessage, ChunkView | None]:
    """Parses a message: without its chunk, and the chunk as a view of `data`. The chunk's bytes are not copied.

    Raises ValueError for bytes that are no such message.
    """
    try:
        number: int = cls.DESCRIPTOR.fields_by_name["chunk"].number
        end, body = _find_chunk(data, number << 3 | _BYTES)
        chunk = None if body is None else _parse_chunk(data, body)
    except (_Unusual, IndexError):
        return _parse_slowly(cls, data)
    return _parse(cls, data[:end] if chunk else data), chunk


def _parse(cls: type[AnyMessage], data: bytes) -> AnyMessage:
    try:
        return cls.FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a {cls.DESCRIPTOR.name}: {error}") from error


def _parse_slowly(cls: type[AnyMessage], data: bytes) -> tuple[AnyMessage, ChunkView | None]:
    message = _parse(cls, data)
    if not message.HasField("chunk"):
        return message, None
    chunk = message.chunk  # type: ignore[attr-defined]  # every such message has this field
    view = ChunkView(chunk.offset, chunk.sum, memoryview(chunk.data))
    message.ClearField("chunk")
    return message, view


def _find_chunk(data: bytes, wanted: int) -> tuple[int, int | None]:
    """Returns where the fields before the chunk end, and where its body begins (None without a chunk)."""
    at = 0
    while at < len(data):
        tag = data[at]
        if tag == wanted:
            size, body = _read_varint(data, at + 1)
            if body + size != len(data):
                raise _Unusual
            return at, body
        at = _skip(data, at + 1, tag)
    if at != len(data):
        raise _Unusual
    return at, None


def _skip(data: bytes, at: int, tag: int) -> int:
    """Returns the end of the field that begins after its one-byte tag."""
    kind = tag & 7
    if tag >= 0x80:
        raise _Unusual
    if kind == _VARINT:
        return _read_varint(data, at)[1]
    if kind == _BYTES:
        size, at = _read_varint(data, at)
        return at + size
    if kind in (_FIXED64, _FIXED32):
        return at + (8 if kind == _FIXED64 else 4)
    raise _Unusual


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """Returns a 64-bit value and where it ends."""
    value = 0
    for shift in range(0, 63, 7):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise _Unusual


def _parse_chunk(data: bytes, at: int) -> ChunkView:
    """Parses the body of a Chunk that reaches to the end of `data`; each field at most once, in order."""
    end = len(data)
    offset = total = 0
    content = memoryview(data)[end:]
    if at < end and data[at] == _OFFSET_TAG:
        offset, at = _read_varint(data, at + 1)
    if at < end and data[at] == _SUM_TAG:
        total = int.from_bytes(data[at + 1 : at + 9], "little")
        at += 9
    if at < end and data[at] == _DATA_TAG:
        size, at = _read_varint(data, at + 1)
        content = memoryview(data)[at : at + size]
        at += size
    if at != end:
        raise _Unusual
    return ChunkView(offset, total, content)


def to_proto(spec: ParameterSpec) -> tensor_pb2.Parameter:
    """Converts a parameter to its message."""
    dtype, table = f"DTYPE_{spec.dtype.upper()}", spec.table
    return tensor_pb2.Parameter(
        name=spec.name,
        shape=spec.shape,
        dtype=dtype,
        trainable=spec.trainable,
        table=None if table is None else tensor_pb2.Table(**asdict(table)),
    )


def from_proto(message: tensor_pb2.Parameter) -> ParameterSpec:
    """Converts a parameter from its message. Raises ValueError for what no parameter can be."""
    if message.dtype not in tensor_pb2.DType.values():
        raise ValueError(f"parameter {message.name}: unknown type number {message.dtype}")
    dtype = tensor_pb2.DType.Name(message.dtype).removeprefix("DTYPE_").lower()
    shape = tuple(message.shape)
    table = _table(message) if message.HasField("table") else None
    return ParameterSpec(name=message.name, shape=shape, dtype=dtype, trainable=message.trainable, table=table)


def _table(message: tensor_pb2.Parameter) -> TableSpec:
    said = message.table
    try:
        return TableSpec(spread=said.spread, lazy=said.lazy, push_rows=said.push_rows, capacity=said.capacity)
    except ValueError as error:
        raise ValueError(f"table {message.name}: {error}") from None
