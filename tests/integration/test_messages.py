"""What crosses the wire: bounded messages with default options, whole or not at all."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import grpc
import numpy as np
import pytest
from light_worker import final_values, run_worker
from local_cluster import LocalCluster

import grpc_ps.client.shard_client as shard_client
from grpc_ps.client.shared.blocks import ParameterSpec

MIB = 1 << 20
LIMIT = MIB + 64 * 1024


class Sizes(grpc.UnaryUnaryClientInterceptor, grpc.UnaryStreamClientInterceptor, grpc.StreamStreamClientInterceptor):
    """Records the size of every message that a client sends or receives."""

    def __init__(self) -> None:
        self.largest = 0
        self.messages = 0

    def note(self, message: Any) -> Any:
        size = len(message) if isinstance(message, bytes) else message.ByteSize()
        self.largest = max(self.largest, size)
        self.messages += 1
        return message

    def intercept_unary_unary(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        call = continuation(details, self.note(request))
        self.note(call.result())
        return call

    def intercept_unary_stream(self, continuation: Callable[..., Any], details: Any, request: Any) -> Any:
        return Noted(continuation(details, self.note(request)), self)

    def intercept_stream_stream(self, continuation: Callable[..., Any], details: Any, requests: Any) -> Any:
        return Noted(continuation(details, map(self.note, requests)), self)


class Noted:
    """A call whose responses are recorded."""

    def __init__(self, call: Any, sizes: Sizes) -> None:
        self._call = call
        self._sizes = sizes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._call, name)

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        return self._sizes.note(next(self._call))


@pytest.fixture
def sizes(monkeypatch: pytest.MonkeyPatch) -> Sizes:
    recorded = Sizes()
    open_channel = shard_client.open_channel

    def opened(*args: Any, **options: Any) -> grpc.Channel:
        channel: Any = open_channel(*args, **options)
        seen: Any = grpc.intercept_channel(channel, recorded)
        # What close_channel waits by.
        seen._connectivity_state = channel._connectivity_state
        return seen

    monkeypatch.setattr(shard_client, "open_channel", opened)
    return recorded


@pytest.mark.parametrize("nbytes", [8 * MIB, 64 * MIB, 4194303 + 1, 4194304 + 4, 4194304 - 64])
def test_b21_no_tensor_is_too_large_and_no_message_above_a_chunk(nbytes: int, sizes: Sizes) -> None:
    """Fault B21: one variable of 8 or 64 MiB, or around gRPC's 4 MiB, with default options on both ends."""
    spec = ParameterSpec(name="w", shape=(nbytes // 4,), dtype="float32")
    first = np.arange(nbytes // 4, dtype=np.float32) % 1000

    def gradient(worker: int, batch: int, values: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        assert values["w"].tobytes() == first.tobytes()
        return {"w": first}, 1

    with LocalCluster(1, presets={"learning_rate": 0.5}) as cluster:
        run_worker(cluster.addresses, [spec], gradient, initial={"w": first}, pushes=1)
        _, values = final_values(cluster.addresses)
    assert values["w"].tobytes() == (first - np.float32(0.5) * first).tobytes()
    assert sizes.messages > nbytes // MIB * 4
    assert MIB // 2 < sizes.largest <= LIMIT


@pytest.mark.parametrize("chunk_bytes", [1024, 64 * 1024, MIB])
def test_the_chunk_size_changes_no_value(chunk_bytes: int) -> None:
    spec = ParameterSpec(name="w", shape=(300, 100), dtype="float32")
    first = np.random.default_rng(1).normal(size=(300, 100)).astype(np.float32)

    def gradient(worker: int, batch: int, values: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        return {"w": np.sin(values["w"])}, 1

    presets = {"optimizer": "adagrad", "learning_rate": 0.1, "steps": 5}
    with LocalCluster(2, presets=presets, chunk_bytes=chunk_bytes) as cluster:
        done = run_worker(cluster.addresses, [spec], gradient, initial={"w": first})
    expected = done.parameters["w"]
    with LocalCluster(1, presets=presets) as cluster:
        done = run_worker(cluster.addresses, [spec], gradient, initial={"w": first})
    assert done.parameters["w"].tobytes() == expected.tobytes()


def test_b23_a_parameter_a_thousand_times_larger_than_a_message(sizes: Sizes) -> None:
    """Fault B23, fast form: 1 MB through chunks of 1 KiB, opened, pushed and pulled."""
    spec = ParameterSpec(name="w", shape=(512, 500), dtype="float32")
    first = np.random.default_rng(2).normal(size=spec.shape).astype(np.float32)

    def gradient(worker: int, batch: int, values: dict[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        assert values["w"].tobytes() == first.tobytes()
        return {"w": first}, 1

    with LocalCluster(2, presets={"learning_rate": 0.5}, chunk_bytes=1024) as cluster:
        run_worker(cluster.addresses, [spec], gradient, initial={"w": first}, pushes=1)
        _, values = final_values(cluster.addresses)
    assert values["w"].tobytes() == (first - np.float32(0.5) * first).tobytes()
    assert sizes.messages > 4 * spec.nbytes // 1024
    assert sizes.largest < 2048
