"""Workers that want to join, and wait for that."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from typing import TYPE_CHECKING

from grpc_ps.client.shared.logs import event
from grpc_ps.psserver.lead.joining import JoinReply, JoinRequest

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.coordinator import Coordinator
    from grpc_ps.psserver.lead.job import Job

LOOK_SECONDS = 0.5
"""After which a worker that waits is looked at again, whether there is news or not."""

logger = logging.getLogger(__name__)


class Reception:
    """Holds the calls of workers that have to wait. Not guarded: used by the lead's event loop alone."""

    def __init__(self, lead: Coordinator) -> None:
        self._lead = lead
        self._waiting = 0
        self._changed = asyncio.Event()
        self._seen: tuple[int, str, str] = (0, "", "")

    def look(self, job: Job) -> None:
        """Lets those who wait look again, if there is something new: their looking is not."""
        if not self._waiting:
            return
        seen = (job.log.position, job.phase, job.waiting_for())
        if seen != self._seen:
            self._seen = seen
            self._changed.set()
            self._changed = asyncio.Event()

    async def join(self, request: JoinRequest, wait: float) -> JoinReply:
        """Lets a worker join, holding the call for up to `wait` seconds while it has to wait."""
        deadline = time.monotonic() + wait
        self._waiting += 1
        try:
            while True:
                reply = self._lead.act(lambda now: self._lead.job.join(request, now))
                left = deadline - time.monotonic()
                if reply.state != "WAITING" or left <= 0:
                    return _told(reply, request)
                with suppress(asyncio.TimeoutError):
                    await asyncio.wait_for(self._changed.wait(), min(left, LOOK_SECONDS))
        finally:
            self._waiting -= 1


def _told(reply: JoinReply, request: JoinRequest) -> JoinReply:
    if reply.member is not None:
        event(logger, "joined", worker=reply.member.worker, incarnation=reply.member.incarnation, name=request.name)
    return reply
