"""Tensors travel as the bytes that they are."""

from __future__ import annotations

import numpy as np
from google.protobuf.descriptor import Descriptor, FieldDescriptor

from grpc_ps.client.parameters import Parameters
from grpc_ps.client.pushes import Push
from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.protos import tensor_pb2

NUMBERS = (FieldDescriptor.CPPTYPE_FLOAT, FieldDescriptor.CPPTYPE_DOUBLE)


def test_b71_a_push_is_its_tensors_bytes_and_hardly_more() -> None:
    """Fault B71: 4 MiB of gradients; every chunk is found as it is in its message, beside at most 64 bytes."""
    specs = [ParameterSpec(name="w", shape=(1 << 20,), dtype="float32")]
    parameters = Parameters(specs, place(specs, 1))
    values = np.random.default_rng(71).normal(size=1 << 20).astype(np.float32)
    push = Push(wire.PushHeader(kind=wire.PushHeader.KIND_GRADIENTS), parameters.flatten({"w": values}, values=False))
    messages = list(push.messages(0, parameters.shards[0], 1 << 20))
    raw = values.tobytes()
    assert all(raw[number << 20 : (number + 1) << 20] in message for number, message in enumerate(messages))
    assert len(messages) == 4
    assert sum(map(len, messages)) - len(raw) <= 64 * len(messages)


def test_b71_no_message_with_a_payload_has_numbers_one_by_one() -> None:
    """Fault B71: what a push or a pull consists of has no repeated floating-point field, however deep."""
    assert tensor_pb2.Chunk.DESCRIPTOR.fields_by_name["data"].type == FieldDescriptor.TYPE_BYTES
    seen: set[str] = set()

    def check(message: Descriptor) -> None:
        if message.full_name in seen:
            return
        seen.add(message.full_name)
        for field in message.fields:
            assert not (field.is_repeated and field.cpp_type in NUMBERS), field.full_name
            if field.message_type is not None:
                check(field.message_type)

    for message in (wire.PushPullRequest, wire.PushPullResponse, wire.PullResponse):
        check(message.DESCRIPTOR)
    assert "grpc_ps.v1.Chunk" in seen
