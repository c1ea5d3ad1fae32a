"""Feeds the decisions on shard 0: brings in the clock, and takes what they wrote to the shards."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from itertools import islice
from typing import TypeVar

from grpc_ps.client.shared.errors import InvalidPush, LostState, PsError, error_classes
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import coordination_pb2 as wire
from grpc_ps.protos import job_pb2
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.clock import Clock
from grpc_ps.psserver.followers import FollowerLinks
from grpc_ps.psserver.job_description import JobDescription
from grpc_ps.psserver.lead.clipping import Squares
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.joining import JoinReply, JoinRequest
from grpc_ps.psserver.lead.log import Dismiss, Done, Entry
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.steering import Change
from grpc_ps.psserver.messages import entry_message, push_of
from grpc_ps.psserver.replay import Replay

TICK = 0.1
"""Seconds from one look at the clock to the next."""
ENTRIES_PER_MESSAGE = 64
BYTES_PER_MESSAGE = 1 << 20
"""Entries of a message together; a single one may be larger."""

T = TypeVar("T")
logger = logging.getLogger(__name__)


class Coordinator:
    """The lead of a job, on shard 0's event loop.

    Every method runs the decision at once and hands the entries that follow to this shard's replay and to the
    followers. Refusals come out as errors of the tree.

    Attributes:
        ended: set when the job is over and every worker has gone.

    Args:
        on_failure: told of an error in a decision that is no refusal: a bug, and this shard is useless then.
    """

    def __init__(self, job: Job, replay: Replay, chunk_bytes: int, on_failure: Callable[[BaseException], None]) -> None:
        self.job = job
        self.chunk_bytes = chunk_bytes
        self.ended = asyncio.Event()
        self.started_at = time.monotonic()
        self._replay = replay
        self._on_failure = on_failure
        self._delivered = 0
        self._links = FollowerLinks()
        self._changed = asyncio.Event()
        self._description: JobDescription | None = None
        self._clock = Clock()
        self._waiting = 0
        self._seen: tuple[int, str, str] = (0, "", "")

    @property
    def spec(self) -> job_pb2.JobSpec | None:
        """The job as it was opened, as messages have it; None before a worker opens it."""
        return self._description.spec if self._description else None

    @property
    def present_spec(self) -> job_pb2.JobSpec | None:
        """The job with its settings as they are now."""
        return self._description.present() if self._description else None

    def now(self) -> float:
        """The time that the decisions see, in seconds."""
        return self._clock.now()

    def act(self, decision: Callable[[float], T]) -> T:
        """Runs a decision at the present time and carries out what follows."""
        try:
            return decision(self.now())
        except Refusal as refusal:
            raise error_of(refusal) from refusal
        except Exception as error:
            # Half a decision may be taken: nobody can go on from that.
            self._on_failure(error)
            raise
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
            self._links.wake()
        if self.job.finished():
            self.ended.set()
        if self._waiting:
            self._wake_joiners()

    def _wake_joiners(self) -> None:
        """Lets those who wait to join look again, if there is something new: their looking is not."""
        seen = (self.job.log.position, self.job.phase, self.job.waiting_for())
        if seen != self._seen:
            self._seen = seen
            self._changed.set()
            self._changed = asyncio.Event()

    def _note(self, entry: Entry) -> None:
        if isinstance(entry, Dismiss):
            event(logger, "worker_gone", worker=entry.worker, incarnation=entry.incarnation, why=entry.detail or "left")

    async def run(self) -> None:
        """Lets time pass for the decisions, until the job is over."""
        while not self.ended.is_set():
            await asyncio.sleep(TICK)
            self._clock.tick()
            self.act(self.job.tick)

    async def join(self, request: JoinRequest, wait: float) -> JoinReply:
        """Lets a worker join, holding the call for up to `wait` seconds while it has to wait."""
        deadline = time.monotonic() + wait
        self._waiting += 1
        try:
            while True:
                reply = self.act(lambda now: self.job.join(request, now))
                self._specify()
                left = deadline - time.monotonic()
                if reply.state != "WAITING" or left <= 0:
                    return self._joined(reply, request)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), min(left, TICK * 5))
        finally:
            self._waiting -= 1

    def _joined(self, reply: JoinReply, request: JoinRequest) -> JoinReply:
        if reply.member is not None:
            event(logger, "joined", worker=reply.member.worker, incarnation=reply.member.incarnation, name=request.name)
        return reply

    def _specify(self) -> None:
        definition = self.job.definition
        if definition is None or (self._description is not None and self._description.describes(definition)):
            return
        self._description = JobDescription(definition, self.job.shards.count)
        self._replay.expect(self._description.spec)

    def begun(self, header: PushHeader) -> None:
        """A push has begun to arrive at this shard."""
        training = self.job.training
        if training is not None and training.rounds.judges_steps:
            self.act(lambda now: self.job.begun(push_of(header), now))

    def whole(self, shard: int, report: wire.Whole) -> None:
        """A shard holds its part of a push.

        Raises:
            InvalidPush: the report is not what this job asks for.
        """
        squares = self._squares(shard, report.squares)
        self.act(lambda now: self.job.whole(shard, push_of(report.header), report.non_finite, now, squares))

    def reduced(self, shard: int, report: wire.Reduced) -> None:
        """A shard has made a mean.

        Raises:
            InvalidPush: the report is not what this job asks for.
        """
        squares = self._squares(shard, report.squares)
        self.act(lambda now: self.job.reduced(shard, report.position, squares, now))

    def _squares(self, shard: int, sums: Sequence[float]) -> Squares:
        """Says which parameter each sum belongs to."""
        if not sums:
            return ()
        owners = self._description.owners[shard] if self._description else ()
        if len(sums) != len(owners):
            raise InvalidPush(f"shard {shard} reports {len(sums)} sums of squares, it has {len(owners)} blocks")
        return tuple(zip(owners, sums, strict=True))

    def ask(self, worker: int, incarnation: int, sequence: int, *, out_of_data: bool = False) -> None:
        """A worker asks what to do next, or says that its own data is used up."""
        self.act(lambda now: self.job.ask(worker, incarnation, sequence, now, out_of_data=out_of_data))

    def report(self, worker: int, incarnation: int, global_step: int, metrics: Mapping[str, float]) -> None:
        """A worker has evaluated."""
        self.act(lambda now: self.job.report(worker, incarnation, global_step, metrics, now))
        shown = " ".join(f"{name}:{value:.6g}" for name, value in sorted(metrics.items()))
        event(logger, "evaluated", worker=worker, evaluated_step=global_step, metrics=shown)

    def change(self, change: Change) -> None:
        """Changes the job while it runs."""
        self.act(lambda now: self.job.change(change, now))
        stated = {name: value for name, value in asdict(change).items() if value is not None}
        event(logger, "changed", global_step=self.job.step, position=self.job.log.position, **stated)

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

    def unpin(self, shard: int, snapshot: int) -> None:
        """A shard has let go of a snapshot: a reader has had it."""
        self.job.pins.drop(shard, snapshot)

    def overflow(self, parameter: str, step: int) -> None:
        """An update went wrong on some shard."""
        self.act(lambda now: self.job.overflow(parameter, step))

    def stop(self, done: Done) -> None:
        """Ends the job."""
        self.act(lambda now: self.job.stop(done))

    def connect(self, hello: wire.Hello) -> asyncio.Event:
        """A shard's link is up; the event that is returned, set when there are new entries, stands for that link."""
        self.act(lambda now: self.job.follow(hello.shard, hello.shard_count, hello.boot, hello.address, now))
        news = self._links.add(hello.shard)
        event(logger, "shard_connected", shard=hello.shard, address=hello.address, position=hello.position)
        return news

    def disconnect(self, shard: int, boot: int, news: asyncio.Event) -> None:
        """A shard's link broke. It may have another one by now: an old link's end may be noticed late."""
        if self._links.remove(shard, news):
            self.act(lambda now: self.job.shards.disconnect(shard, boot, now))

    def acknowledge(self, shard: int, position: int) -> None:
        """A shard has taken the log up to `position`.

        Before the job is open a shard may restart, and then needs all of it.
        """
        everywhere = self.job.shards.acknowledge(shard, position)
        if self.job.opened:
            self.job.log.trim(everywhere)

    async def entries(self, news: asyncio.Event, position: int, seconds: float) -> list[wire.Entry]:
        """Waits up to `seconds` for entries after `position`; they are few enough for one message."""
        if position >= self.job.log.position:
            news.clear()
            try:
                await asyncio.wait_for(news.wait(), seconds)
            except asyncio.TimeoutError:
                return []
        spec = self.spec or job_pb2.JobSpec()
        generation = self._replay.generation
        found: list[wire.Entry] = []
        size = 0
        for at, entry in self._kept_after(position):
            message = entry_message(at, entry, generation, spec)
            size += message.ByteSize()
            if found and size > BYTES_PER_MESSAGE:
                break
            found.append(message)
        return found

    def _kept_after(self, position: int) -> list[tuple[int, Entry]]:
        """The entries after that position.

        Raises:
            LostState: some of them are no longer kept, for the shard has acknowledged them.
        """
        try:
            return list(islice(self.job.log.after(position), ENTRIES_PER_MESSAGE))
        except LookupError as error:
            raise LostState(str(error)) from error


def error_of(refusal: Refusal) -> PsError:
    """The error of the tree that a refusal names."""
    return error_classes()[refusal.reason](refusal.detail)
