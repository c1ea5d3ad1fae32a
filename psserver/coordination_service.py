"""The service Coordination: followers get the log from the lead here."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import Any

import grpc.aio

from grpc_ps.client.shared.errors import Mismatch, UsageError
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import coordination_pb2 as wire
from grpc_ps.psserver.aio import EOF, first_message
from grpc_ps.psserver.followers import FollowerLink
from grpc_ps.psserver.lead.coordinator import Coordinator
from grpc_ps.psserver.replay import Replay
from grpc_ps.psserver.reports import check_acknowledges, check_hello, check_report
from grpc_ps.psserver.upstream import ShardReports
from grpc_ps.psserver.worker_service import check_protocol, lead_of

logger = logging.getLogger(__name__)

Context = grpc.aio.ServicerContext[wire.FollowRequest, wire.FollowResponse]

POLL = 1.0
"""Seconds after which a link without entries looks whether the job is over."""


class CoordinationService:
    """Serves the log to the followers."""

    def __init__(self, coordinator: Coordinator | None, replay: Replay, boot: int) -> None:
        self._coordinator = coordinator
        self._replay = replay
        self._boot = boot
        self._links: set[asyncio.Task[Any]] = set()
        self._shutdown: wire.Shutdown | None = None
        self._told: set[int] = set()
        self._changed = asyncio.Event()

    async def dismiss_followers(self, shutdown: wire.Shutdown, seconds: float) -> None:
        """Tells every follower that the job is over, within `seconds`; waits for one whose link is down, too."""
        self._shutdown = shutdown
        lead = lead_of(self._coordinator)
        left = {shard.shard for shard in lead.job.shards} - self._told
        deadline = time.monotonic() + seconds
        while left and (remaining := deadline - time.monotonic()) > 0:
            self._changed.clear()
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._changed.wait(), remaining)
            left -= self._told
        if self._links:
            await asyncio.wait(self._links, timeout=max(0.0, deadline - time.monotonic()))

    async def Follow(self, requests: Any, context: Context) -> None:
        """See `coordination.proto`."""
        lead = lead_of(self._coordinator)
        request: Any = await first_message(context, self._replay.patience)
        if request is EOF or not request.HasField("hello"):
            raise UsageError("the first message of a link is `hello`")
        hello = request.hello
        check_protocol(hello.protocol)
        check_hello(hello)
        if hello.chunk_bytes != lead.chunk_bytes:
            sizes = f"shard {hello.shard} has {hello.chunk_bytes}, the lead {lead.chunk_bytes}"
            raise Mismatch(f"--chunk-bytes: {sizes}; it must be the same on all shards")
        _check_folder(hello, lead)
        link = lead.following.connect(hello)
        # One that was let go of may have come back.
        self._told.discard(hello.shard)
        reader = asyncio.create_task(self._read(lead, hello, link, context))
        writer = asyncio.create_task(self._write(lead, hello, link, context))
        self._links.add(writer)
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            for task in (reader, writer):
                if task.done():
                    task.result()
        finally:
            reader.cancel()
            writer.cancel()
            self._links.discard(writer)
            lead.following.disconnect(hello.shard, hello.boot, link)

    async def _read(self, lead: Coordinator, hello: wire.Hello, link: FollowerLink, context: Context) -> None:
        reports = ShardReports(lead, hello.shard)
        while True:
            request: Any = await context.read()
            # What was told to another generation means nothing to this one.
            if request is EOF or link.cut:
                return
            check_report(request, hello.shard, lead.job)
            if request.HasField("whole"):
                reports.whole(request.whole)
            if request.HasField("reduced"):
                reports.reduced(request.reduced)
            if request.HasField("overflow"):
                reports.overflow(request.overflow.parameter, request.overflow.global_step)
            if request.HasField("saved"):
                reports.saved(request.saved)
            if request.leaving:
                reports.leaving()
            if request.HasField("unable"):
                reports.unable(request.unable)
            if request.unpinned:
                reports.unpinned(request.unpinned)
            if request.HasField("times"):
                link.times, link.tables = request.times, request.tables
            if request.acknowledged:
                lead.following.acknowledge(hello.shard, request.acknowledged)

    async def _write(self, lead: Coordinator, hello: wire.Hello, link: FollowerLink, context: Context) -> None:
        identity, earlier = self._replay.identity, lead.jobs.earlier_runs
        welcome = wire.Welcome(run=identity.run, generation=identity.generation, boot=self._boot, earlier_runs=earlier)
        await context.write(wire.FollowResponse(welcome=welcome))
        position = link.position
        while True:
            entries = await lead.following.entries(link, position, POLL)
            shutdown = self._shutdown
            if shutdown is None and lead.job.attendance.released(hello.shard):
                shutdown = wire.Shutdown()
            if entries:
                position = entries[-1].position
                check_acknowledges(lead.job, hello.shard, position)
                await context.write(wire.FollowResponse(entries=entries))
            elif shutdown is not None:
                await context.write(wire.FollowResponse(shutdown=shutdown))
                self._told.add(hello.shard)
                self._changed.set()
                return


def _check_folder(hello: wire.Hello, lead: Coordinator) -> None:
    """Refuses a shard that keeps its part of checkpoints elsewhere, or nowhere, and says so here too."""
    keeper = lead.folder
    if hello.checkpoint_mark == (keeper.mark if keeper is not None else ""):
        return
    has = f"has {keeper.directory}" if keeper is not None else "has none"
    what = "another folder than shard 0, which" if hello.checkpoint_mark else "no folder, and shard 0"
    error = Mismatch(f"--checkpoint-dir: shard {hello.shard} has {what} {has}")
    event(logger, "shard_refused", logging.WARNING, shard=hello.shard, why=error)
    raise error
