"""A training stream's call that a test plays, and answers for it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from typing import Any

import grpc
import numpy as np

from grpc_ps.client.shared.blocks import ParameterSpec, cut
from grpc_ps.client.shared.codec import encode_message
from grpc_ps.client.shared.image import gather, values_layout
from grpc_ps.client.stream import TrainingStream
from grpc_ps.protos import parameter_server_pb2 as wire

SPEC = ParameterSpec(name="w", shape=(50,), dtype="float32")
LAYOUT = values_layout(cut(SPEC))
VALUE = np.arange(50, dtype=np.float32)
IMAGE = b"".join(gather(LAYOUT, 0, 256, [VALUE.view(np.uint8).data]))
Response = wire.PushPullResponse


class FakeCall(grpc.RpcError):
    """A bidirectional call. `requests` is read by the test, `responses` are what it answers."""

    def __init__(self, requests: Iterator[bytes], responses: list[bytes] | None = None) -> None:
        self.requests = requests
        self.responses: SimpleQueue[bytes | None] = SimpleQueue()
        for response in responses or []:
            self.responses.put(response)
        self.status: tuple[grpc.StatusCode, str, Any] | None = None
        self._callbacks: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    def add_callback(self, callback: Callable[[], None]) -> bool:
        self._callbacks.append(callback)
        return True

    def end(self, code: grpc.StatusCode, details: str = "", metadata: Any = ()) -> None:
        with self._lock:
            if self.status is not None:
                return
            self.status = (code, details, metadata)
        self.responses.put(None)
        for callback in self._callbacks:
            callback()

    def cancel(self) -> None:
        self.end(grpc.StatusCode.CANCELLED, "Locally cancelled by application!")

    def __next__(self) -> bytes:
        response = self.responses.get()
        if response is None:
            self.responses.put(None)
            if self.code() is grpc.StatusCode.OK:
                raise StopIteration
            raise self
        return response

    def code(self) -> grpc.StatusCode:
        assert self.status is not None
        return self.status[0]

    def details(self) -> str:
        assert self.status is not None
        return self.status[1]

    def trailing_metadata(self) -> Any:
        assert self.status is not None
        return self.status[2]


def stream(*responses: bytes) -> tuple[TrainingStream, FakeCall, list[None]]:
    calls: list[FakeCall] = []
    ended: list[None] = []

    def start(requests: Iterator[bytes]) -> FakeCall:
        calls.append(FakeCall(requests, list(responses)))
        return calls[0]

    one = TrainingStream(start, "a:1", lambda: ended.append(None))
    return one, calls[0], ended


def release(total: int = 256, **more: int) -> wire.Answer:
    return wire.Answer(position=4, release=wire.Release(batch=2, total_bytes=total), **more)


def chunk(message: Response, offset: int, data: bytes) -> bytes:
    return encode_message(message, offset, [data])


GOOD = [
    chunk(Response(answer=release()), 0, IMAGE[:128]),
    chunk(Response(), 128, IMAGE[128:192]),
    chunk(Response(end=True), 192, IMAGE[192:]),
]


def read(*responses: bytes) -> tuple[wire.Answer, np.ndarray]:
    one, _, _ = stream(*responses)
    destination = np.zeros(50, np.float32)
    return one.read_answer(LAYOUT, [destination.view(np.uint8)]), destination


def until(holds: Callable[[], bool]) -> None:
    """Waits for what another thread does."""
    deadline = time.monotonic() + 30
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.001)
