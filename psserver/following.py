"""The lead's side of the followers' links: who is there, and what each is still to be sent."""

from __future__ import annotations

import asyncio
import logging
from itertools import islice
from typing import TYPE_CHECKING

from grpc_ps.client.shared.errors import LostState, RolledBack
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import coordination_pb2 as wire
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.followers import FollowerLink, FollowerLinks
from grpc_ps.psserver.lead.log import Entry
from grpc_ps.psserver.messages import entry_message

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.coordinator import Coordinator

ENTRIES_PER_MESSAGE = 64
BYTES_PER_MESSAGE = 1 << 20
"""Entries of a message together; a single one may be larger."""

logger = logging.getLogger(__name__)


class Following:
    """Hands the log to the followers. Not guarded: used by the lead's event loop alone."""

    def __init__(self, lead: Coordinator) -> None:
        self._lead = lead
        self._links = FollowerLinks()

    def wake(self) -> None:
        """There are new entries."""
        self._links.wake()

    def cut(self) -> None:
        """Ends every link: another generation begins."""
        self._links.cut()

    def connect(self, hello: wire.Hello) -> FollowerLink:
        """A shard's link is up."""
        job = self._lead.job
        self._lead.act(
            lambda now: job.attendance.follow(hello.shard, hello.shard_count, hello.boot, hello.address, now)
        )
        # What it counts in another generation means nothing, and who comes after the end has missed nothing.
        position = hello.position if hello.generation == self._lead.generation else 0
        if self._lead.job.done is not None and not position:
            position = self._lead.job.log.position
        event(logger, "shard_connected", shard=hello.shard, address=hello.address, position=position)
        return self._links.add(hello.shard, position)

    def disconnect(self, shard: int, boot: int, link: FollowerLink) -> None:
        """A shard's link broke. It may have another one by now: an old link's end may be noticed late."""
        if self._links.remove(shard, link):
            self._lead.act(lambda now: self._lead.job.shards.disconnect(shard, boot, now))

    def link(self, shard: int) -> FollowerLink | None:
        """A shard's link, with what came over it last; None while it is down."""
        return self._links.newest(shard)

    def acknowledge(self, shard: int, position: int) -> None:
        """A shard has taken the log up to `position`.

        Before the job is open a shard may restart, and then needs all of it.
        """
        everywhere = self._lead.job.shards.acknowledge(shard, position)
        if self._lead.job.opened:
            self._lead.job.log.trim(everywhere)

    async def entries(self, link: FollowerLink, position: int, seconds: float) -> list[wire.Entry]:
        """Waits up to `seconds` for entries after `position`; they are few enough for one message.

        Raises:
            RolledBack: the link's generation is over.
        """
        if not link.cut and position >= self._lead.job.log.position:
            link.news.clear()
            # Cheaper than `wait_for`, which makes a task each time: once an update.
            timer = asyncio.get_running_loop().call_later(seconds, link.news.set)
            try:
                await link.news.wait()
            finally:
                timer.cancel()
        if link.cut:
            raise RolledBack("the job goes back to a checkpoint: connect again")
        spec = self._lead.spec or job_pb2.JobSpec()
        generation = self._lead.generation
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
            return list(islice(self._lead.job.log.after(position), ENTRIES_PER_MESSAGE))
        except LookupError as error:
            raise LostState(str(error)) from error
