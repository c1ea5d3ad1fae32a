"""Feeds the decisions on shard 0: brings in the clock, and takes what they wrote to the shards."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import TypeVar

from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.codec import to_proto
from grpc_ps.client.shared.errors import PsError, error_classes
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import coordination_pb2 as wire
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.joining import Definition, JoinReply, JoinRequest
from grpc_ps.psserver.lead.log import Dismiss, Done, Entry
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.messages import entry_message
from grpc_ps.psserver.replay import Replay

TICK = 0.1
"""Seconds from one look at the clock to the next."""
STOOD_STILL = 1.0
"""Seconds between two looks after which this process has not listened."""
ENTRIES_PER_MESSAGE = 64

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Coordinator:
    """The lead of a job, on shard 0's event loop.

    Every method runs the decision at once and hands the entries that follow to this shard's replay and to the
    followers. Refusals come out as errors of the tree.

    Attributes:
        ended: set when the job is over and every worker has gone.
    """

    def __init__(self, job: Job, replay: Replay, chunk_bytes: int) -> None:
        self.job = job
        self.chunk_bytes = chunk_bytes
        self.ended = asyncio.Event()
        self.started_at = time.monotonic()
        self._replay = replay
        self._delivered = 0
        self._followers: dict[int, asyncio.Event] = {}
        self._changed = asyncio.Event()
        self._spec: job_pb2.JobSpec | None = None
        self._specified: Definition | None = None

    @property
    def spec(self) -> job_pb2.JobSpec | None:
        """The job as messages have it, once a worker opens it."""
        return self._spec

    def act(self, decision: Callable[[float], T]) -> T:
        """Runs a decision at the present time and carries out what follows."""
        try:
            return decision(time.monotonic())
        except Refusal as refusal:
            raise error_of(refusal) from refusal
        finally:
            self._flush()

    def _flush(self) -> None:
        log = self.job.log
        while self._delivered < log.position:
            entries = list(log.after(self._delivered))
            self._delivered = log.position
            if self.job.shards.count == 1:
                log.trim(log.position)
            for position, entry in entries:
                self._note(entry)
                self._replay.deliver(position, entry)
            for follower in self._followers.values():
                follower.set()
        if self.job.finished():
            self.ended.set()
        self._changed.set()
        self._changed = asyncio.Event()

    def _note(self, entry: Entry) -> None:
        if isinstance(entry, Dismiss):
            event(logger, "worker_gone", worker=entry.worker, incarnation=entry.incarnation, why=entry.detail or "left")

    async def run(self) -> None:
        """Lets time pass for the decisions, until the job is over.

        Where this process stood still (importing TensorFlow, stopped by a signal) heartbeats are waiting to be read:
        that time ends nobody's lease.
        """
        last = time.monotonic()
        while not self.ended.is_set():
            await asyncio.sleep(TICK)
            now = time.monotonic()
            if now - last > STOOD_STILL:
                self.job.members.excuse(now - last)
            last = now
            self.act(self.job.tick)

    async def join(self, request: JoinRequest, wait: float) -> JoinReply:
        """Lets a worker join, holding the call for up to `wait` seconds while it has to wait."""
        deadline = time.monotonic() + wait
        while True:
            reply = self.act(lambda now: self.job.join(request, now))
            self._specify()
            left = deadline - time.monotonic()
            if reply.state != "WAITING" or left <= 0:
                return self._joined(reply, request)
            try:
                await asyncio.wait_for(self._changed.wait(), min(left, TICK * 5))
            except asyncio.TimeoutError:
                continue

    def _joined(self, reply: JoinReply, request: JoinRequest) -> JoinReply:
        if reply.member is not None:
            event(logger, "joined", worker=reply.member.worker, incarnation=reply.member.incarnation, name=request.name)
        return reply

    def _specify(self) -> None:
        definition = self.job.definition
        if definition is None or definition is self._specified:
            return
        specs = [
            ParameterSpec(name=it.name, shape=it.shape, dtype=it.dtype, trainable=it.trainable)
            for it in definition.parameters.values()
        ]
        self._spec = job_pb2.JobSpec(
            model=definition.model,
            parameters=[to_proto(spec) for spec in specs],
            settings=job_pb2.Settings(**definition.settings),  # type: ignore[arg-type]  # checked when they came
            plan_fingerprint=place(specs, self.job.shards.count).fingerprint,
        )
        self._specified = definition
        self._replay.expect(self._spec)

    def whole(self, shard: int, push: Push, non_finite: str) -> None:
        """A shard holds its part of a push."""
        self.act(lambda now: self.job.whole(shard, push, non_finite, now))

    def ask(self, worker: int, incarnation: int, sequence: int) -> None:
        """A worker asks what to do next."""
        self.act(lambda now: self.job.ask(worker, incarnation, sequence, now))

    def beat(self, worker: int, incarnation: int, local_step: int, loss: float | None) -> Member:
        """A worker lives, and tells its own count of steps and its last loss."""
        member = self.act(lambda now: self.job.beat(worker, incarnation, now))
        member.local_step, member.loss = local_step, loss
        return member

    def leave(self, worker: int, incarnation: int) -> None:
        """A worker goes."""
        self.act(lambda now: self.job.leave(worker, incarnation, now))

    def pin(self, snapshot: int) -> None:
        """Pins a snapshot for a reader."""
        self.act(lambda now: self.job.pin(snapshot, now))

    def unpin(self, snapshot: int) -> None:
        """A reader is done."""
        self.job.unpin(snapshot)

    def overflow(self, parameter: str, step: int) -> None:
        """An update went wrong on some shard."""
        self.act(lambda now: self.job.overflow(parameter, step))

    def stop(self, done: Done) -> None:
        """Ends the job."""
        self.act(lambda now: self.job.stop(done))

    def connect(self, hello: wire.Hello) -> asyncio.Event:
        """A shard's link is up; the event that is returned, set when there are new entries, stands for that link."""
        self.act(lambda now: self.job.follow(hello.shard, hello.shard_count, hello.boot, hello.address, now))
        news = self._followers[hello.shard] = asyncio.Event()
        event(logger, "shard_connected", shard=hello.shard, address=hello.address, position=hello.position)
        return news

    def disconnect(self, shard: int, boot: int, news: asyncio.Event) -> None:
        """A shard's link broke; if it has another one by now, that goes on."""
        if self._followers.get(shard) is not news:
            return
        del self._followers[shard]
        self.act(lambda now: self.job.shards.disconnect(shard, boot, now))

    def acknowledge(self, shard: int, position: int) -> None:
        """A shard has carried out the log up to `position`."""
        self.job.log.trim(self.job.shards.acknowledge(shard, position))

    async def entries(self, news: asyncio.Event, position: int, seconds: float) -> list[wire.Entry]:
        """Waits up to `seconds` for entries after `position`; they are few enough for one message."""
        if position >= self.job.log.position:
            news.clear()
            try:
                await asyncio.wait_for(news.wait(), seconds)
            except asyncio.TimeoutError:
                return []
        spec = self._spec or job_pb2.JobSpec()
        generation = self._replay.generation
        found = []
        for at, entry in self.job.log.after(position):
            found.append(entry_message(at, entry, generation, spec))
            if len(found) == ENTRIES_PER_MESSAGE:
                break
        return found


def error_of(refusal: Refusal) -> PsError:
    """The error of the tree that a refusal names."""
    return error_classes()[refusal.reason](refusal.detail)
