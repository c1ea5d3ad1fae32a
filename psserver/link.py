"""A follower's link to the lead: entries come in, reports go out."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any, TypeAlias

import grpc
import grpc.aio

from grpc_ps.client.shared.errors import (
    CheckpointError,
    Fenced,
    JobFailed,
    Mismatch,
    PeerLost,
    PeerUnreachable,
    PsError,
    RolledBack,
    from_rpc_error,
)
from grpc_ps.client.shared.logs import event
from grpc_ps.client.shared.security import Security
from grpc_ps.protos import coordination_pb2 as wire
from grpc_ps.protos import job_pb2
from grpc_ps.protos.coordination_pb2_grpc import CoordinationStub
from grpc_ps.psserver.aio import EOF
from grpc_ps.psserver.messages import entry_of, held_messages, times_message
from grpc_ps.psserver.replay import Replay

RETRY = 0.2
SAY_EVERY = 5.0
ACKNOWLEDGE_EVERY = 64
TELL_TIMES_EVERY = 0.5
"""Seconds, as long as entries come."""

Call: TypeAlias = grpc.aio.StreamStreamCall[wire.FollowRequest, wire.FollowResponse]

logger = logging.getLogger(__name__)


class Link:
    """Keeps one stream to the lead and makes it again when it breaks; `run` ends with the job.

    Args:
        lead: the lead's address.
        security: what protects the link.
        hello: what this shard is; position and parts are filled in at each connection.
        connect_seconds: how long to wait for the lead at first.
        link_seconds: how long to try to find it again.
        mark: what the folder of checkpoints has of the lead, as `Hello.checkpoint_mark`.
    """

    def __init__(
        self,
        *,
        lead: str,
        security: Security,
        hello: wire.Hello,
        replay: Replay,
        connect_seconds: float,
        link_seconds: float,
        mark: Callable[[], str] = lambda: "",
    ) -> None:
        self._lead = lead
        self._security = security
        self._hello = hello
        self._replay = replay
        self._connect_seconds = connect_seconds
        self._link_seconds = link_seconds
        self._reports: asyncio.Queue[wire.FollowRequest] = asyncio.Queue()
        self._overflow: wire.FollowRequest | None = None
        self._unable: wire.FollowRequest | None = None
        self._mark = mark
        self._sent_mark = ""
        self._said = 0.0
        self._leaving = False
        self._connected = False
        self._lead_boot = 0
        self._acknowledged = 0
        self._last_up = 0.0
        self._telling = False

    def whole(self, report: wire.Whole) -> None:
        """Tells the lead that a part is whole; after a broken link `hello` tells it again."""
        self._reports.put_nowait(wire.FollowRequest(whole=report))

    def reduced(self, report: wire.Reduced) -> None:
        """Tells the lead that the mean of a round is made; until it is applied, `hello` tells it again."""
        self._reports.put_nowait(wire.FollowRequest(reduced=report))

    def overflow(self, parameter: str, step: int) -> None:
        """Tells the lead of an update that went wrong; again after a broken link, for nothing else would."""
        self._overflow = wire.FollowRequest(overflow=wire.Overflow(parameter=parameter, global_step=step))
        self._reports.put_nowait(self._overflow)

    def unpinned(self, snapshot: int) -> None:
        """Tells the lead of a snapshot that was read. What a broken link loses of that is not told again: at the lead
        every snapshot's time ends."""
        self._reports.put_nowait(wire.FollowRequest(unpinned=snapshot))

    @property
    def connected(self) -> bool:
        """Whether the lead has welcomed this shard, and the link has not broken since."""
        return self._connected

    def saved(self, report: wire.Saved) -> None:
        """Tells the lead of a part of a checkpoint; after a broken link again, as long as there is no newer one."""
        self._reports.put_nowait(wire.FollowRequest(saved=report))

    def leaving(self) -> None:
        """Tells the lead that this shard was told to end; `run` returns when it is not needed any more."""
        self._leaving = True
        self._reports.put_nowait(wire.FollowRequest(leaving=True))

    def unable(self, exit_code: int, reason: str) -> None:
        """Tells the lead that the job has to end, with that exit code, for it cannot be carried out here; again after
        a broken link."""
        self._unable = wire.FollowRequest(unable=wire.Unable(exit_code=exit_code, reason=reason))
        self._reports.put_nowait(self._unable)

    async def run(self) -> wire.Shutdown:
        """Follows the lead until it says that the job is over.

        Raises:
            PeerUnreachable: the lead did not come (back) in time.
            PsError: it refuses this shard.
        """
        async with self._security.aio_channel(self._lead) as channel:
            stub = CoordinationStub(channel)
            self._last_up = self._said = time.monotonic()
            while True:
                try:
                    return await self._follow(stub)
                except (RolledBack, PeerUnreachable, PeerLost, Fenced, CheckpointError) as error:
                    self._check_patience(error)
                except Mismatch as error:
                    # What a lead that has just started wrote into the folder may have come after this shard looked.
                    if await self._read_mark() == self._sent_mark:
                        raise
                    self._check_patience(error)
                await asyncio.sleep(RETRY)

    def _check_patience(self, error: PsError) -> None:
        """Notes that there is no link; PeerUnreachable if that has lasted for too long."""
        now = time.monotonic()
        if self._connected:
            # However long the link was quiet, it is gone only from now on.
            self._connected, self._last_up = False, now
        patience = self._link_seconds if self._lead_boot else self._connect_seconds
        if now - self._last_up > patience:
            silent = f"shard 0 ({self._lead}) has not answered for {patience:g} s"
            raise PeerUnreachable(f"{silent} ({error})") from error
        if now - self._said > SAY_EVERY:
            self._said = now
            event(logger, "waiting", what=f"the lead at {self._lead}", why=error)

    async def _read_mark(self) -> str:
        """Reads what the lead wrote into the folder of checkpoints; in a thread, for the disk may be slow."""
        return await asyncio.to_thread(self._mark)

    async def _follow(self, stub: CoordinationStub) -> wire.Shutdown:
        self._sent_mark = await self._read_mark()
        call = stub.Follow(metadata=self._security.metadata(self._lead))
        try:
            await call.write(wire.FollowRequest(hello=self._fresh_hello()))
            # Nothing is reported before the lead has said that this is still its generation.
            await self._await_welcome(call)
            self._report_anew()
            sender = asyncio.create_task(self._send_reports(call))
            receiver = asyncio.create_task(self._receive(call))
            try:
                await asyncio.wait((sender, receiver), return_when=asyncio.FIRST_COMPLETED)
                if sender.done():
                    sender.result()
                return await receiver
            finally:
                sender.cancel()
                receiver.cancel()
        except grpc.aio.AioRpcError as error:
            failure = from_rpc_error(error, self._lead)
            # The lead says the end of the job by `shutdown`: a status without a name is gRPC's own, and may pass.
            raise PeerLost(str(failure)) if isinstance(failure, JobFailed) else failure from error
        except asyncio.InvalidStateError as error:
            # It has ended before anything could be written to it.
            raise PeerLost(f"lead {self._lead}: the link ended") from error
        finally:
            call.cancel()

    def _fresh_hello(self) -> wire.Hello:
        hello = wire.Hello()
        hello.CopyFrom(self._hello)
        hello.generation = self._replay.identity.generation
        hello.position = self._acknowledged = self._replay.delivered
        hello.checkpoint_mark = self._sent_mark
        return hello

    def _report_anew(self) -> None:
        """Reports what the lead may have missed, each thing in a message of its own."""
        self._reports = asyncio.Queue()
        self._tell_times()
        for whole in self._replay.staging.all_whole():
            self.whole(whole)
        if self._replay.reduced is not None:
            self.reduced(self._replay.reduced)
        if self._replay.saver.saved is not None:
            self.saved(self._replay.saver.saved)
        for report in (self._overflow, self._unable):
            if report is not None:
                self._reports.put_nowait(report)
        if self._leaving:
            self.leaving()

    async def _send_reports(self, call: Call) -> None:
        """Ends by itself when the call has: `_receive` says why."""
        with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
            while True:
                await call.write(await self._reports.get())

    async def _read(self, call: Call) -> wire.FollowResponse:
        response: Any = await call.read()
        if response is EOF:
            await call.wait_for_connection()
            raise PeerLost(f"lead {self._lead}: the link ended")
        message: wire.FollowResponse = response
        return message

    async def _await_welcome(self, call: Call) -> None:
        response = await self._read(call)
        if not response.HasField("welcome"):
            raise PeerLost(f"lead {self._lead}: the link began without `welcome`")
        self._check_welcome(response.welcome)
        self._connected = True

    async def _receive(self, call: Call) -> wire.Shutdown:
        while True:
            response = await self._read(call)
            self._carry_out(response)
            if response.HasField("shutdown"):
                return response.shutdown

    def _check_welcome(self, welcome: wire.Welcome) -> None:
        replay = self._replay
        follows = replay.identity.run in (welcome.run, *welcome.earlier_runs)
        if self._lead_boot not in (0, welcome.boot) and not follows:
            raise JobFailed(f"shard 0 ({self._lead}) lost its state and no checkpoint is configured")
        self._lead_boot = welcome.boot
        if not replay.identity.generation:
            replay.identity.run, replay.identity.generation = welcome.run, welcome.generation
        elif welcome.generation != replay.identity.generation:
            event(logger, "rolled_back", position=replay.position)
            replay.begin(welcome.run, welcome.generation)
            self._overflow = None
        event(logger, "following", lead=self._lead)

    def _check_job(self, job: job_pb2.JobSpec) -> None:
        """The opener described the job when it attached here; the values are staged by that."""
        if self._replay.plan is None or self._replay.plan.job != job:
            raise JobFailed("the opener gave this shard another job than the lead")

    def _carry_out(self, response: wire.FollowResponse) -> None:
        for entry in response.entries:
            if entry.HasField("open") and entry.open.HasField("push"):
                self._check_job(entry.open.job)
            elif entry.HasField("open"):
                self._replay.expect(entry.open.job)
            self._replay.deliver(entry.position, entry_of(entry))
        position = self._replay.delivered
        if position - self._acknowledged >= ACKNOWLEDGE_EVERY:
            self._acknowledged = position
            self._reports.put_nowait(wire.FollowRequest(acknowledged=position))
        if not self._telling:
            self._telling = True
            asyncio.get_running_loop().call_later(TELL_TIMES_EVERY, self._tell_times)

    def _tell_times(self) -> None:
        self._telling = False
        times, tables = times_message(self._replay.times), held_messages(self._replay.tables)
        self._reports.put_nowait(wire.FollowRequest(times=times, tables=tables))
