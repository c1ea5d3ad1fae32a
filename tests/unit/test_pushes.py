"""What a push is on the wire: a header, chunks and an end."""

from __future__ import annotations

import numpy as np
from fake_call import IMAGE, LAYOUT, VALUE

from grpc_ps.client.pushes import push_messages
from grpc_ps.client.shared.codec import detach_chunk
from grpc_ps.client.shared.image import values_layout
from grpc_ps.protos import parameter_server_pb2 as wire


def test_push_is_header_chunks_and_end() -> None:
    header = wire.PushHeader(sequence=3, total_bytes=256)
    messages = [
        detach_chunk(wire.PushPullRequest, message)
        for message in push_messages(header, LAYOUT, 128, [VALUE.view(np.uint8).data])
    ]
    assert [message for message, _ in messages] == [
        wire.PushPullRequest(header=header),
        wire.PushPullRequest(end=True),
    ]
    assert b"".join(part.data for _, part in messages if part) == IMAGE
    assert [part.offset for _, part in messages if part] == [0, 128]


def test_push_to_a_shard_without_blocks_is_one_message() -> None:
    header = wire.PushHeader(sequence=3)
    messages = list(push_messages(header, values_layout([]), 128, []))
    assert messages == [wire.PushPullRequest(header=header, end=True).SerializeToString()]
