"""A worker that knows nothing of this project but its protocol: an example for one in another language.

It is made from `protos/README.md` and the generated code alone; "step N" is one of its "A minimal worker". What that
page allows to leave out is left out: it ends when a stream breaks, with the error as gRPC raises it.
"""

from __future__ import annotations

import hashlib
import math
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from queue import SimpleQueue
from typing import Any, NamedTuple, TypeAlias

import grpc
import numpy as np

from grpc_ps.protos import job_pb2, tensor_pb2
from grpc_ps.protos import parameter_server_pb2 as pb
from grpc_ps.protos.parameter_server_pb2_grpc import ParameterServerStub

FLOATING = {"float32": 4, "float64": 8, "float16": 2, "bfloat16": 2}
ITEM_BYTES = {**FLOATING, "int32": 4, "int64": 8, "bool": 1}

Values: TypeAlias = Mapping[str, np.ndarray]
# (parameters, batch number, the job's settings) -> (gradients of the mean loss, examples in the batch)
Gradient: TypeAlias = Callable[[Values, int, job_pb2.Settings], tuple[Values, int]]


class BrokenContract(Exception):
    """A shard sent what it must not send, or ended a stream that is needed."""


class Model(NamedTuple):
    """What is trained, and the values that it begins with; `job` has its name and parameters."""

    job: job_pb2.JobSpec
    initial: Values
    gradient: Gradient


class Block(NamedTuple):
    """Elements `start` to `end` of a parameter."""

    name: str
    start: int
    end: int
    nbytes: int


class Plan:
    """Which shard has which blocks ("Blocks and placement"), and how they lie in its images ("Images and chunks")."""

    def __init__(self, parameters: Sequence[tensor_pb2.Parameter], shard_count: int) -> None:
        self.parameters = sorted(parameters, key=lambda parameter: parameter.name)
        self.dtypes = {p.name: tensor_pb2.DType.Name(p.dtype).removeprefix("DTYPE_").lower() for p in parameters}
        self.shards: list[list[Block]] = [[] for _ in range(shard_count)]
        loads = [0] * shard_count
        blocks = [block for parameter in self.parameters for block in self._cut(parameter)]
        for block in sorted(blocks, key=lambda block: (-block.nbytes, block.name, block.start)):
            shard = loads.index(min(loads))
            self.shards[shard].append(block)
            loads[shard] += block.nbytes
        for placed in self.shards:
            placed.sort()

    def _cut(self, parameter: tensor_pb2.Parameter) -> Iterator[Block]:
        count = math.prod(parameter.shape)
        piece = count if count <= 131072 else min(262144, max(16384, -(-count // 16 // 1024) * 1024))
        for start in range(0, count, max(piece, 1)):
            end = min(start + piece, count)
            yield Block(parameter.name, start, end, (end - start) * ITEM_BYTES[self.dtypes[parameter.name]])

    def fingerprint(self) -> str:
        """Returns `JobSpec.plan_fingerprint`. The way in which the page quotes names is that of Python's `ascii`."""
        lines = [f"shards {len(self.shards)}"]
        for parameter in self.parameters:
            dtype, extents = self.dtypes[parameter.name], list(parameter.shape)
            lines.append(f"parameter {parameter.name!a} {dtype} {extents} {int(parameter.trainable)}")
        for shard, blocks in enumerate(self.shards):
            lines += [f"block {shard} {block.name!a} {block.start} {block.end}" for block in blocks]
        return hashlib.sha256("\n".join(lines).encode("ascii")).hexdigest()

    def pack(self, shard: int, arrays: Values, *, values: bool) -> bytes:
        """Makes a shard's image, of values or of a push."""
        image = bytearray()
        for name, start, end, _ in self.shards[shard]:
            if values or self.dtypes[name] in FLOATING:
                image += np.asarray(arrays[name], self._dtype(name)).reshape(-1)[start:end].tobytes()
                image += bytes(-len(image) % 64)
        return bytes(image)

    def unpack(self, images: Sequence[bytes]) -> dict[str, np.ndarray]:
        """Returns the parameters out of all shards' images of values."""
        arrays = {p.name: np.empty(tuple(p.shape), self._dtype(p.name)) for p in self.parameters}
        for blocks, image in zip(self.shards, images, strict=True):
            offset = 0
            for name, start, end, nbytes in blocks:
                arrays[name].reshape(-1)[start:end] = np.frombuffer(image, self._dtype(name), end - start, offset)
                offset += -(-nbytes // 64) * 64
            if offset != len(image):
                raise BrokenContract(f"an image of {len(image)} bytes instead of {offset}")
        return arrays

    def _dtype(self, name: str) -> np.dtype[Any]:
        return np.dtype(self.dtypes[name]).newbyteorder("<")


def chunk_sum(data: bytes) -> int:
    """Returns `Chunk.sum`; numpy's sum of 64-bit words wraps around."""
    return int(np.frombuffer(data, "<u8").sum(dtype=np.uint64))


def push_messages(header: pb.PushHeader, image: bytes, chunk_bytes: int) -> list[pb.PushPullRequest]:
    """Returns a push's messages: the header in the first, `end` in the last, a chunk in each if there are bytes."""
    pieces = [(offset, image[offset : offset + chunk_bytes]) for offset in range(0, len(image), chunk_bytes)]
    chunks = [tensor_pb2.Chunk(offset=offset, sum=chunk_sum(data), data=data) for offset, data in pieces]
    messages = [pb.PushPullRequest(chunk=chunk) for chunk in chunks] or [pb.PushPullRequest()]
    messages[0].header.CopyFrom(header)
    messages[-1].end = True
    return messages


def take(stream: Iterator[Any]) -> Any:
    """Returns a stream's next message."""
    if (message := next(stream, None)) is None:
        raise BrokenContract("the shard ended the stream")
    return message


def take_image(message: Any, stream: Iterator[Any]) -> bytes:
    """Puts the chunks of this message and of those behind it together, up to `end`."""
    image = bytearray()
    while True:
        if message.HasField("chunk"):
            chunk = message.chunk
            if chunk.offset != len(image) or len(chunk.data) % 64 or chunk.sum != chunk_sum(chunk.data):
                raise BrokenContract(f"a chunk at {chunk.offset}, where {len(image)} is due, or its sum is wrong")
            image += chunk.data
        if message.end:
            return bytes(image)
        message = take(stream)


class Link:
    """A training stream to one shard; `answer` is its newest answer and `image` what came behind that."""

    def __init__(self, stub: ParameterServerStub, attach: pb.Attach) -> None:
        self.requests: SimpleQueue[pb.PushPullRequest | None] = SimpleQueue()
        self.requests.put(pb.PushPullRequest(attach=attach))
        self.responses = stub.PushPull(iter(self.requests.get, None))
        self.answer, self.image = pb.Answer(), b""

    def receive(self) -> pb.Answer:
        message = take(self.responses)
        self.answer, self.image = message.answer, take_image(message, self.responses)
        return self.answer


class ForeignWorker:
    """A member from `with` on, which leaves at its end; `train` runs in the caller's thread, heartbeats in their own.

    No answer is awaited for ever: all streams close when one ends, the job is over, or the lead is silent. It tells
    `outcomes` by sequence, the `batches` that it got, answered heartbeats, and with which exit code it is `done`.
    """

    def __init__(self, addresses: Sequence[str], model: Model, stated: job_pb2.Settings) -> None:
        self._model, self._plan = model, Plan(model.job.parameters, len(addresses))
        self.outcomes: dict[int, str] = {}
        self.batches: list[int] = []
        self.beats = self._pushes = 0
        self.done: tuple[int, str] | None = None
        self._stop, self._heart = threading.Event(), threading.Thread(target=self._beat, daemon=True)
        self._links: list[Link] = []
        self._channels = [grpc.insecure_channel(address) for address in addresses]
        self._stubs = [ParameterServerStub(channel) for channel in self._channels]
        self._wish = pb.JoinRequest(protocol=1, shard_count=len(addresses), job=model.job, stated=stated, wait_ms=1000)

    def __enter__(self) -> ForeignWorker:
        """Joins: steps 3 and 4. Leaving the `with` is step 11."""
        deadline = time.monotonic() + 60
        for channel in self._channels:
            grpc.channel_ready_future(channel).result(60)
        self._wish.nonce = random.getrandbits(64)
        while (member := self._stubs[0].Join(self._wish, timeout=10)).state == pb.JoinResponse.STATE_WAITING:
            if time.monotonic() > deadline:
                raise TimeoutError(f"waited in vain for {member.waiting_for}")
        self.member = member
        if member.state == pb.JoinResponse.STATE_DONE:
            self.done = member.exit_code, member.reason
        else:
            self._heart.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._heart.ident is not None:
            self._heart.join()
            with suppress(grpc.RpcError):
                self._stubs[0].Leave(pb.LeaveRequest(id=self.member.id), timeout=2)
        self._close()
        for channel in self._channels:
            channel.close()

    def _close(self) -> None:
        """Ends the streams; whoever waits for an answer is woken by an error."""
        for link in self._links:
            link.requests.put(None)
            link.responses.cancel()

    def _beat(self) -> None:
        lease, heard = self.member.lease_ms / 1000, time.monotonic()
        while not self._stop.wait(lease / 4):
            try:
                answer = self._stubs[0].Heartbeat(pb.HeartbeatRequest(id=self.member.id), timeout=max(1, lease / 4))
            except grpc.RpcError as error:
                refused = any(entry.key == "grpc-ps-reason" for entry in error.trailing_metadata() or ())
                over = refused or time.monotonic() > heard + 3 * lease
            else:
                heard, self.beats, over = time.monotonic(), self.beats + 1, answer.done
                if over and not self._stop.wait(1):  # An answer that says so may be on its way.
                    self.done = answer.exit_code, answer.reason
            if over:
                self._close()

    def train(self) -> None:
        """Pushes until the job is over: steps 5 to 10."""
        try:
            if self.done is None:
                self._attach()
                while (answer := self._next_release()) is not None:
                    self._step(answer)
        except (grpc.RpcError, BrokenContract):
            if self.done is None:
                raise

    def _attach(self) -> None:
        """Steps 5 and 6."""
        if self.member.job.plan_fingerprint != self._plan.fingerprint():
            raise BrokenContract("another placement")
        opener = self.member.state == pb.JoinResponse.STATE_OPENER
        attach = pb.Attach(id=self.member.id, job=self.member.job if opener else None)
        self._links = [Link(stub, attach) for stub in self._stubs]
        for link in self._links:
            if not take(link.responses).HasField("attached") or not link.responses.add_callback(self._close):
                raise BrokenContract("a stream did not begin with `attached`, or ended there")
        if opener:
            self._push(self._model.initial, pb.PushHeader.KIND_VALUES)
        else:
            self._links[0].requests.put(pb.PushPullRequest(ask=pb.Ask(id=self.member.id)))

    def _next_release(self) -> pb.Answer | None:
        """Step 7: reads until all shards have answered from one position with a release, or one of them with `done`."""
        used = self._links[0].answer.position
        while True:
            behind = min(self._links, key=lambda link: link.answer.position)
            newest = max(link.answer.position for link in self._links)
            if behind.answer.position == newest > used and behind.answer.HasField("release"):
                return behind.answer
            answer = behind.receive()
            if answer.HasField("result"):
                self.outcomes[answer.result.sequence] = pb.Outcome.Name(answer.result.outcome)
            if answer.HasField("done"):
                self.done = answer.done.exit_code, answer.done.reason
                return None

    def _step(self, answer: pb.Answer) -> None:
        """Step 8: computes on the parameters that came with the release, and pushes."""
        batch = answer.release.batch
        self.batches.append(batch)
        values = self._plan.unpack([link.image for link in self._links])
        gradients, count = self._model.gradient(values, batch, self.member.job.settings)
        self._push(gradients, pb.PushHeader.KIND_GRADIENTS, batch=batch, base_step=answer.global_step, examples=count)

    def _push(self, arrays: Values, kind: pb.PushHeader.Kind, **fields: int) -> None:
        """Step 9, and step 6 with the initial values."""
        self._pushes += 1
        for shard, link in enumerate(self._links):
            image = self._plan.pack(shard, arrays, values=kind == pb.PushHeader.KIND_VALUES)
            header = pb.PushHeader(
                id=self.member.id, sequence=self._pushes, kind=kind, total_bytes=len(image), **fields
            )
            for message in push_messages(header, image, self.member.chunk_bytes):
                link.requests.put(message)


def linear_gradient(values: Values, batch: int, settings: job_pb2.Settings) -> tuple[Values, int]:
    """Returns the gradient of the mean squared loss; seed and number of the batch determine its examples."""
    x = np.random.default_rng([settings.seed, batch]).uniform(-1, 1, settings.batch_size).astype(np.float32)
    error = values["w"] * x + values["b"] - (np.float32(0.1) * x + np.float32(0.3))
    return {"w": np.asarray(np.mean(2 * error * x)), "b": np.asarray(np.mean(2 * error))}, len(x)


SCALARS = [tensor_pb2.Parameter(name=name, dtype=tensor_pb2.DTYPE_FLOAT32, trainable=True) for name in ("w", "b")]
LINEAR = Model(job_pb2.JobSpec(model="linear", parameters=SCALARS), dict.fromkeys("wb", np.zeros(())), linear_gradient)
