"""A follower's link to the lead: entries come in, reports go out."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import grpc
import grpc.aio

from grpc_ps.client.shared.channel_options import CLIENT_OPTIONS
from grpc_ps.client.shared.errors import JobFailed, PeerLost, PeerUnreachable, from_rpc_error
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import coordination_pb2 as wire
from grpc_ps.protos import job_pb2
from grpc_ps.protos.coordination_pb2_grpc import CoordinationStub
from grpc_ps.psserver.aio import EOF
from grpc_ps.psserver.messages import entry_of
from grpc_ps.psserver.replay import Replay

RETRY = 0.2
SAY_EVERY = 5.0
ACKNOWLEDGE_EVERY = 64

logger = logging.getLogger(__name__)


class Link:
    """Keeps one stream to the lead and makes it again when it breaks; `run` ends with the job.

    Args:
        lead: the lead's address.
        hello: what this shard is; position and parts are filled in at each connection.
        connect_seconds: how long to wait for the lead at first.
        link_seconds: how long to try to find it again.
    """

    def __init__(
        self, *, lead: str, hello: wire.Hello, replay: Replay, connect_seconds: float, link_seconds: float
    ) -> None:
        self._lead = lead
        self._hello = hello
        self._replay = replay
        self._connect_seconds = connect_seconds
        self._link_seconds = link_seconds
        self._reports: asyncio.Queue[wire.FollowRequest] = asyncio.Queue()
        self._overflow: wire.FollowRequest | None = None
        self._connected = False
        self._lead_boot = 0
        self._acknowledged = 0
        self._last_up = 0.0

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

    async def run(self) -> wire.Shutdown:
        """Follows the lead until it says that the job is over.

        Raises:
            PeerUnreachable: the lead did not come (back) in time.
            PsError: it refuses this shard.
        """
        async with grpc.aio.insecure_channel(self._lead, options=CLIENT_OPTIONS) as channel:
            stub = CoordinationStub(channel)
            self._last_up = said = time.monotonic()
            while True:
                try:
                    return await self._follow(stub)
                except (PeerUnreachable, PeerLost) as error:
                    now = time.monotonic()
                    if self._connected:
                        # However long the link was quiet, it is gone only from now on.
                        self._connected, self._last_up = False, now
                    patience = self._link_seconds if self._lead_boot else self._connect_seconds
                    if now - self._last_up > patience:
                        raise PeerUnreachable(f"shard 0 ({self._lead}) has not answered for {patience:g} s") from error
                    if now - said > SAY_EVERY:
                        said = now
                        event(logger, "waiting", what=f"the lead at {self._lead}")
                await asyncio.sleep(RETRY)

    async def _follow(self, stub: CoordinationStub) -> wire.Shutdown:
        call = stub.Follow()
        try:
            await call.write(wire.FollowRequest(hello=self._fresh_hello()))
            sender = asyncio.create_task(self._send_reports(call))
            try:
                return await self._receive(call)
            finally:
                sender.cancel()
        except grpc.aio.AioRpcError as error:
            raise from_rpc_error(error, self._lead) from error
        finally:
            call.cancel()

    def _fresh_hello(self) -> wire.Hello:
        """Begins anew: what the lead may have missed is reported behind `hello`, each thing in a message of its own."""
        self._reports = asyncio.Queue()
        for whole in self._replay.staging.all_whole():
            self.whole(whole)
        if self._replay.reduced is not None:
            self.reduced(self._replay.reduced)
        if self._overflow is not None:
            self._reports.put_nowait(self._overflow)
        hello = wire.Hello()
        hello.CopyFrom(self._hello)
        hello.position = self._acknowledged = self._replay.delivered
        return hello

    async def _send_reports(self, call: grpc.aio.StreamStreamCall[wire.FollowRequest, wire.FollowResponse]) -> None:
        while True:
            await call.write(await self._reports.get())

    async def _receive(self, call: grpc.aio.StreamStreamCall[wire.FollowRequest, wire.FollowResponse]) -> wire.Shutdown:
        while True:
            response: Any = await call.read()
            if response is EOF:
                await call.wait_for_connection()
                raise PeerLost(f"lead {self._lead}: the link ended")
            if response.HasField("welcome"):
                self._connected = True
                self._check_welcome(response.welcome)
            self._carry_out(response)
            if response.HasField("shutdown"):
                shutdown: wire.Shutdown = response.shutdown
                return shutdown

    def _check_welcome(self, welcome: wire.Welcome) -> None:
        if self._lead_boot not in (0, welcome.boot):
            raise JobFailed(f"shard 0 ({self._lead}) lost its state and no checkpoint is configured")
        self._lead_boot = welcome.boot
        self._replay.run, self._replay.generation = welcome.run, welcome.generation
        event(logger, "following", lead=self._lead)

    def _check_job(self, job: job_pb2.JobSpec) -> None:
        """The opener described the job when it attached here; the values are staged by that."""
        if self._replay.plan is None or self._replay.plan.job != job:
            raise JobFailed("the opener gave this shard another job than the lead")

    def _carry_out(self, response: wire.FollowResponse) -> None:
        for entry in response.entries:
            if entry.HasField("open"):
                self._check_job(entry.open.job)
            self._replay.deliver(entry.position, entry_of(entry))
        position = self._replay.delivered
        if position - self._acknowledged >= ACKNOWLEDGE_EVERY:
            self._acknowledged = position
            self._reports.put_nowait(wire.FollowRequest(acknowledged=position))
