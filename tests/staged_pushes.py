"""Pushes for the staging of one shard, filled by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
from updated_shards import plan_of

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.codec import ChunkView, word_sum
from grpc_ps.client.shared.image import block_views, chunk_spans
from grpc_ps.protos.job_pb2 import Identity
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.part import Part
from grpc_ps.psserver.staging import Staging

SPECS = [
    ParameterSpec(name="a", shape=(40,), dtype="float32"),
    ParameterSpec(name="b", shape=(3,), dtype="float64"),
    ParameterSpec(name="n", shape=(5,), dtype="int32", trainable=False),
]
CHUNK = 1 << 20
OLD, NEW = object(), object()


PLAN = plan_of(SPECS)
LAYOUT = PLAN.gradients


def attached(chunk_bytes: int = CHUNK, incarnation: int = 1, **settings: Any) -> Staging:
    staging = Staging(chunk_bytes)
    staging.attach(0, incarnation, plan_of(SPECS, **settings), OLD)
    return staging


def header(worker: int = 0, sequence: int = 1, incarnation: int = 1) -> PushHeader:
    return PushHeader(
        id=Identity(run=1, generation=1, worker=worker, incarnation=incarnation),
        sequence=sequence,
        kind=PushHeader.KIND_GRADIENTS,
        examples=1,
        total_bytes=LAYOUT.total_bytes,
    )


def image(a: float = 1.0, b: float = 2.0) -> np.ndarray:
    buffer = np.zeros(LAYOUT.total_bytes, np.uint8)
    views = block_views(LAYOUT, buffer)
    views[0][...] = a
    views[1][...] = b
    return buffer


def chunk(offset: int, data: bytes, total: int | None = None) -> ChunkView:
    return ChunkView(offset, word_sum(data) if total is None else total, memoryview(data))


def fill(part: Part, buffer: np.ndarray, chunk_bytes: int = 64) -> None:
    for offset, nbytes in chunk_spans(LAYOUT, chunk_bytes):
        part.write(chunk(offset, buffer[offset : offset + nbytes].tobytes()))


def begin(staging: Staging, **ids: int) -> Part:
    part = staging.begin(header(**ids))
    assert part is not None
    return part


def whole(staging: Staging, **ids: int) -> Part:
    part = begin(staging, **ids)
    fill(part, image())
    part.finish()
    return part
