"""One shard, a good worker that trains on it, and bad peers that send it anything meanwhile."""

from __future__ import annotations

import ctypes
import gc
import random
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import TracebackType

import fuzzing
import grpc
import numpy as np
import psutil
from google.protobuf.message import Message
from history import wait_for
from local_cluster import LocalCluster
from raw_bed import CHUNK, SIZE, SPEC
from raw_worker import RawStream, RawWorker, floats, push

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import REASON_KEY, error_classes
from grpc_ps.protos import control_pb2, coordination_pb2, job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire

PEERS = 4
PATIENCE = 0.1
"""Seconds that a bad peer waits for an answer; then it goes away, as bad peers do."""
LIMIT = (1 << 20) + (64 << 10)
METHODS = fuzzing.methods()
Said = tuple[grpc.StatusCode, str, str]


def harms(message: Message | None, path: str) -> bool:
    """Whether a peer may do with that message what the good worker would notice: end or change the job, or be it."""
    if message is None:
        return False
    if path.rpartition("/")[2] in ("StopJob", "Set"):
        return True
    return any(
        isinstance(inner, job_pb2.Identity) and (inner.worker, inner.incarnation) == (0, 1)
        for inner in fuzzing.messages_in(message)
    )


def is_typed(said: Said, size: int) -> bool:
    """Whether a call ended as one may: well, with a reason of the tree, or because the caller did not wait."""
    code, reason, _ = said
    if reason:
        # The reason may arrive at the very end of the caller's patience.
        return reason in error_classes() and code in (error_classes()[reason].status, grpc.StatusCode.DEADLINE_EXCEEDED)
    if code is grpc.StatusCode.RESOURCE_EXHAUSTED:
        return size > LIMIT
    return code in (grpc.StatusCode.OK, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)


def said_by(error: grpc.RpcError) -> Said:
    """Status, reason and text of a failed call."""
    pairs = dict(error.trailing_metadata() or ())
    return error.code(), str(pairs.get(REASON_KEY, "")), error.details() or ""


class GoodWorker:
    """Trains in a thread: every gradient is 1, so after n pushes every element is -n / 1024, and it looks each time."""

    def __init__(self, addresses: str) -> None:
        self._addresses = addresses
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.pushes = 0
        self.error: BaseException | None = None

    def __enter__(self) -> GoodWorker:
        self._thread.start()
        self.await_progress()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(30)
        if error is None:
            assert self.error is None, repr(self.error)

    def await_progress(self) -> None:
        """Waits for twenty more pushes."""
        enough = self.pushes + 20
        wait_for(lambda: self.pushes >= enough or self.error is not None, "pushes of the good worker")
        assert self.error is None, repr(self.error)

    def _run(self) -> None:
        try:
            with PSClient(self._addresses, timeout=30.0) as client:
                session = client.join("good", [SPEC])
                session.open({SPEC.name: np.zeros(SPEC.shape, SPEC.dtype)})
                session.begin()
                while not self._stop.is_set():
                    values = session.parameters[SPEC.name]
                    assert np.all(values == -self.pushes / 1024), (self.pushes, values)
                    reply = client.push({SPEC.name: np.ones(SPEC.shape, SPEC.dtype)}, 1)
                    assert str(reply.outcome) == "APPLIED"
                    self.pushes += 1
        except BaseException as error:
            self.error = error


class BadPeer:
    """A member that sends anything: bytes, or messages with its own valid ids in them."""

    def __init__(self, address: str, *, harmless: bool = True) -> None:
        self._harmless = harmless
        self.worker = RawWorker(address)
        self.channel = grpc.insecure_channel(address, options=(("grpc.use_local_subchannel_pool", 1),))
        self._good: dict[str, list[bytes]] = {}
        self.join()

    def close(self) -> None:
        self.worker.leave()
        self.channel.close()
        self.worker.__exit__(None, None, None)

    def join(self) -> None:
        """Begins another life."""
        self.worker.join([SPEC])
        self._good.clear()

    def good(self, path: str) -> list[bytes]:
        """Messages that the shard would take."""
        if path not in self._good:
            self._good[path] = self._make_good(path)
        return self._good[path]

    def _make_good(self, path: str) -> list[bytes]:
        identity = self.worker.id
        header = self.worker.header(1, SIZE)
        known: dict[str, list[Message]] = {
            "Join": [wire.JoinRequest(protocol=1, nonce=7, shard_count=1, job=self.worker.job, name="bad", index=5)],
            "Heartbeat": [wire.HeartbeatRequest(id=identity, local_step=3, loss=0.5)],
            "Leave": [wire.LeaveRequest(id=identity)],
            "Report": [wire.ReportRequest(id=identity, global_step=1, metrics={"loss": 0.5, "accuracy": 0.9})],
            "PushPull": [self.worker.attach_message(), self.worker.ask(0), *push(header, floats(600, 0.0), CHUNK)],
            "Pull": [wire.PullRequest(), wire.PullRequest(snapshot=7)],
            "Set": [control_pb2.SetRequest(workers=2, learning_rate_factor=0.5)],
            "Follow": [
                coordination_pb2.FollowRequest(
                    hello=coordination_pb2.Hello(protocol=1, shard=1, shard_count=1, boot=7, chunk_bytes=CHUNK)
                ),
                coordination_pb2.FollowRequest(whole=coordination_pb2.Whole(header=header), acknowledged=5),
            ],
        }
        return [message.SerializeToString() for message in known.get(path.rpartition("/")[2], [])]

    def message(self, rng: random.Random, path: str) -> bytes:
        """Any message for that rpc, but for what would harm the good worker."""
        kind = METHODS[path].input_type
        known: dict[str, Message] = {job_pb2.Identity.DESCRIPTOR.full_name: self.worker.id}
        for _ in range(1000):
            data = fuzzing.case(rng, kind, self.good(path), known)
            if not (self._harmless and harms(fuzzing.parsed(kind, data), path)):
                return data
        raise AssertionError(f"nothing harmless for {path}")

    def call(self, rng: random.Random, path: str) -> tuple[Said, int]:
        """Makes one call of any kind; how it ended, and the size of the largest message."""
        method = METHODS[path]
        if method.client_streaming:
            return self._stream(rng, path)
        data = self.message(rng, path)
        try:
            if method.server_streaming:
                for _ in self.channel.unary_stream(path)(data, timeout=PATIENCE):
                    pass
            else:
                response = self.channel.unary_unary(path)(data, timeout=PATIENCE)
                if path.endswith("/Join"):
                    self._leave(wire.JoinResponse.FromString(response))
        except grpc.RpcError as error:
            return said_by(error), len(data)
        return (grpc.StatusCode.OK, "", ""), len(data)

    def _leave(self, joined: wire.JoinResponse) -> None:
        if joined.id.incarnation:
            self.worker.stub.Leave(wire.LeaveRequest(id=joined.id), timeout=30)

    def _stream(self, rng: random.Random, path: str) -> tuple[Said, int]:
        plan = rng.choice(("messages", "attached", "pushing", "silent"))
        stream = RawStream(self.channel, path, PATIENCE)
        sent: list[bytes] = []
        if plan == "pushing" and path.endswith("/PushPull"):
            sent = self._push(rng, stream)
        elif plan != "silent":
            first = self.good(path)[:1] if plan == "attached" else []
            sent = [*first, *(self.message(rng, path) for _ in range(rng.randint(1, 5)))]
        stream.send(*sent)
        if rng.random() < 0.2:
            stream.cancel()
        elif rng.random() < 0.9:
            stream.end()
        said = stream.refusal()
        # The thread that waits for messages to send ends.
        stream.end()
        return said, max(map(len, sent), default=0)

    def _push(self, rng: random.Random, stream: RawStream) -> list[bytes]:
        """A push for what it was given, with one thing wrong, or two."""
        self.worker.leave()
        self.join()
        stream.send(self.worker.attach_message(), self.worker.ask(0))
        try:
            stream.read()
            answer, _ = stream.answer()
        except grpc.RpcError:
            return []
        header = self.worker.header(1, SIZE, batch=answer.release.batch, step=answer.global_step)
        messages = [message.SerializeToString() for message in push(header, floats(600, 0.0), CHUNK)]
        at = rng.randrange(len(messages))
        if rng.random() < 0.5:
            rng.shuffle(messages)
        if rng.random() < 0.5:
            messages[at : at + 1] = [messages[at]] * rng.choice((0, 2, 3))
        if messages and rng.random() < 0.8:
            at %= len(messages)
            messages[at] = fuzzing.mutated(rng, messages[at])
        kind = METHODS["/grpc_ps.v1.ParameterServer/PushPull"].input_type
        return [data for data in messages if not harms(fuzzing.parsed(kind, data), "")]


class FuzzBed:
    """The shard, the good worker, and what holds whatever bad peers do."""

    def __init__(self, cluster: LocalCluster, good: GoodWorker) -> None:
        self.cluster = cluster
        self.good = good

    def attack(self, path: str, seed: int, cases: int) -> Counter[str]:
        """Calls one rpc that often, from several peers at once; returns how often which end was seen."""
        seen: Counter[str] = Counter()
        with ThreadPoolExecutor(PEERS) as pool:
            for part in pool.map(lambda peer: self._attack(path, seed, range(peer, cases, PEERS)), range(PEERS)):
                seen += part
        return seen

    def _attack(self, path: str, seed: int, numbers: range) -> Counter[str]:
        seen: Counter[str] = Counter()
        peer = BadPeer(self.cluster.addresses)
        try:
            for number in numbers:
                said, size = peer.call(random.Random(f"{seed} {path} {number}"), path)
                code, reason, text = said
                assert is_typed(said, size), f"{path}, seed {seed}, case {number}: {code.name} {reason!r} {text!r}"
                seen[reason or code.name] += 1
                if reason == "FENCED" or (code is grpc.StatusCode.OK and path.endswith("/Leave")):
                    peer.join()
        finally:
            peer.close()
        return seen

    def check(self) -> None:
        """The good worker goes on, the shard answers, and nothing of the others is left."""
        self.good.await_progress()
        self.cluster.wait_staged([SIZE])
        with PSClient(self.cluster.addresses, timeout=10.0) as client:
            status = client.status()
        assert status.phase == "running"
        assert self.cluster.history.step >= self.good.pushes - 1
        self.cluster.history.check()


@contextmanager
def fuzz_bed() -> Iterator[FuzzBed]:
    """The bed, with its good worker training as worker 0."""
    presets = {"learning_rate": 2.0**-10, "max_workers": 1000}
    with LocalCluster(1, presets=presets, chunk_bytes=CHUNK) as cluster, GoodWorker(cluster.addresses) as good:
        yield FuzzBed(cluster, good)


class Resources:
    """What this process holds of the system, to be compared later; not what its allocator keeps for later."""

    def __init__(self) -> None:
        gc.collect()
        ctypes.CDLL(None).malloc_trim(0)
        process = psutil.Process()
        self.threads = process.num_threads()
        self.descriptors = process.num_fds()
        self.resident = process.memory_info().rss

    @staticmethod
    def settled(condition: Callable[[Resources], bool], what: str) -> Resources:
        """Waits until they are as they should be: what others have left is given back a moment later."""
        wait_for(lambda: condition(Resources()), what, 20.0)
        return Resources()
