"""Bytes that no honest peer sends: random ones, mutations of good ones, and messages whose values are extreme.

All of it follows from a `random.Random`, so that a case that failed can be made again from its seed.
"""

from __future__ import annotations

import importlib
import math
import pkgutil
import random
from collections.abc import Iterator, Sequence
from typing import Any

from google.protobuf.descriptor import Descriptor, FieldDescriptor, MethodDescriptor
from google.protobuf.message import DecodeError, Message
from google.protobuf.message_factory import GetMessageClass

from grpc_ps import protos

LARGE = 1 << 20
Field = FieldDescriptor

_INTEGERS = {
    Field.CPPTYPE_INT32: (0, 1, 2, 3, -1, 2**31 - 1, -(2**31)),
    Field.CPPTYPE_UINT32: (0, 1, 2, 3, 2**31, 2**32 - 1),
    Field.CPPTYPE_INT64: (0, 1, 2, 5, -1, 2**31, 2**62, 2**63 - 1, -(2**63)),
    Field.CPPTYPE_UINT64: (0, 1, 2, 3, 2**32, 2**63 - 1, 2**63, 2**64 - 1),
}
_FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-320, 1e308, -1e308, math.inf, -math.inf, math.nan)
_TEXTS = (
    "",
    "w",
    "a",
    "sync",
    "async",
    "sgd",
    "é\n\x00",
    "x" * 300,
    "1e999",
    "exponential:1:2",
    "a>=1",
    "piecewise:1=",
)


def methods() -> dict[str, MethodDescriptor]:
    """Every rpc of every service of ours, by the path that calls it."""
    found: dict[str, MethodDescriptor] = {}
    for module in pkgutil.iter_modules(protos.__path__):
        if module.name.endswith("_pb2"):
            file = importlib.import_module(f"grpc_ps.protos.{module.name}").DESCRIPTOR
            for service in file.services_by_name.values():
                found |= {f"/{service.full_name}/{method.name}": method for method in service.methods}
    return found


def parsed(kind: Descriptor, data: bytes) -> Message | None:
    """What the bytes mean, None if they are no such message."""
    try:
        message: Message = GetMessageClass(kind).FromString(data)
    except DecodeError:
        return None
    return message


def messages_in(message: Message) -> Iterator[Message]:
    """The message and all that is in it."""
    yield message
    for field, value in message.ListFields():
        if field.cpp_type != Field.CPPTYPE_MESSAGE or field.message_type.GetOptions().map_entry:
            continue
        for inner in value if field.is_repeated else (value,):
            yield from messages_in(inner)


def noise(rng: random.Random) -> bytes:
    """Random bytes, mostly few."""
    return rng.randbytes(rng.choice((0, 1, 2, 8, 30, 200, 5000)))


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Good bytes with one to three things wrong."""
    for _ in range(rng.randint(1, 3)):
        data = rng.choice((_flipped, _truncated, _spliced, _lengthened, _repeated, _retagged))(rng, data)
    return data[: LARGE + 60_000]


def _flipped(rng: random.Random, data: bytes) -> bytes:
    changed = bytearray(data or b"\0")
    for _ in range(rng.randint(1, 4)):
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    return bytes(changed)


def _truncated(rng: random.Random, data: bytes) -> bytes:
    return data[: rng.randint(0, len(data))]


def _spliced(rng: random.Random, data: bytes) -> bytes:
    start, stop = sorted(rng.randint(0, len(data)) for _ in range(2))
    return data[:start] + noise(rng) + data[stop:] if rng.random() < 0.5 else data[stop:] + data[:start]


def _lengthened(rng: random.Random, data: bytes) -> bytes:
    """A varint in the middle of which the largest one stands, as a length perhaps."""
    at = rng.randint(0, len(data))
    return data[:at] + b"\xff" * rng.randint(1, 9) + b"\x7f" + data[at:]


def _repeated(rng: random.Random, data: bytes) -> bytes:
    return data * rng.choice((2, 3, 50)) if len(data) < 10_000 else data * 2


def _retagged(rng: random.Random, data: bytes) -> bytes:
    """A field of another number or wire type, groups included."""
    at = rng.randint(0, len(data))
    return data[:at] + bytes((rng.randint(0, 15) << 3 | rng.randrange(8),)) + data[at:]


def extreme(rng: random.Random, kind: Descriptor, known: dict[str, Message], depth: int = 0) -> Message:
    """A message that parses, with values from the ends of their ranges.

    Args:
        known: by the full name of its type, what stands for a message more often than not: ids that are valid.
    """
    if kind.full_name in known and rng.random() < 0.7:
        return known[kind.full_name]
    message: Message = GetMessageClass(kind)()
    for field in kind.fields:
        if rng.random() < (0.6 if depth < 3 else 0.2):
            _fill(rng, message, field, known, depth)
    return message


def _fill(rng: random.Random, message: Message, field: Field, known: dict[str, Message], depth: int) -> None:
    count = rng.choice((1, 1, 2, 2, 3, 3, 4, 1000 if depth < 2 else 2)) if field.is_repeated else 1
    if field.cpp_type == Field.CPPTYPE_MESSAGE:
        if field.message_type.GetOptions().map_entry:
            entries = getattr(message, field.name)
            key, value = field.message_type.fields
            text = _scalar(rng, key)
            for number in range(count):
                found = _scalar(rng, value)
                # Together as large as one may be: what is larger than any message tells nothing of this rpc.
                entries[f"{text[: LARGE // count]}{number}"] = (
                    found[: LARGE // count] if isinstance(found, str) else found
                )
        elif field.is_repeated:
            made = [extreme(rng, field.message_type, known, depth + 1) for _ in range(min(count, 3))]
            getattr(message, field.name).extend((made * count)[:count])
        else:
            getattr(message, field.name).CopyFrom(extreme(rng, field.message_type, known, depth + 1))
    elif field.is_repeated:
        value = _scalar(rng, field)
        most = LARGE // max(1, len(value)) if isinstance(value, str | bytes) else count
        getattr(message, field.name).extend([value] * max(1, min(count, most)))
    else:
        setattr(message, field.name, _scalar(rng, field))


def _scalar(rng: random.Random, field: Field) -> Any:
    kind = field.cpp_type
    if kind in _INTEGERS:
        return rng.choice(_INTEGERS[kind])
    if kind in (Field.CPPTYPE_FLOAT, Field.CPPTYPE_DOUBLE):
        return rng.choice(_FLOATS)
    if kind == Field.CPPTYPE_BOOL:
        return rng.random() < 0.5
    if kind == Field.CPPTYPE_ENUM:
        return rng.choice((0, 1, 2, 7, -1, 2**31 - 1))
    text: str = "x" * (LARGE - 1000) if rng.random() < 0.01 else rng.choice(_TEXTS)
    return text if field.type == Field.TYPE_STRING else text.encode()


def case(rng: random.Random, kind: Descriptor, good: Sequence[bytes], known: dict[str, Message]) -> bytes:
    """One message for an rpc that takes this kind; `good` are messages that it would take."""
    pick = rng.random()
    if pick < 0.15:
        return noise(rng)
    if pick < 0.6 and good:
        return mutated(rng, rng.choice(good))
    data = extreme(rng, kind, known).SerializeToString()
    return (data if pick < 0.9 else mutated(rng, data))[: 2 * LARGE]
