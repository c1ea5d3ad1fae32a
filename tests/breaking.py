"""Does something at a given stage of a push on one shard: cuts a link, most of all."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from local_cluster import LocalCluster

from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.lead.log import Answer, Entry

STAGES = ("header", "half", "whole", "applied", "answered")


class Breaker:
    """Runs `action` when a push of gradients of that worker (None: of anyone) has come to the armed stage on a shard.

    "header": its header is read. "half": half of its bytes are here. "whole": all are, and nobody is told yet.
    "applied": its answer is about to be written. "answered": it is written, and on its way. All of it happens on the
    cluster's loop, so what the shard writes later is cut off for certain.

    Attributes:
        fired: the stages that were reached, in order.
    """

    def __init__(
        self, cluster: LocalCluster, shard: int, action: Callable[[], None], worker: int | None = None
    ) -> None:
        self._shard = shard
        self._action = action
        self._worker = worker
        self._armed = ""
        self.fired: list[str] = []
        staging: Any = cluster.servers[shard]._replay.staging
        self._begin = staging.begin
        staging.begin = self._watched
        cluster.history.hooks.append(self._carried_out)

    def arm(self, stage: str) -> None:
        """The next push that comes to that stage sets it off, once."""
        self._armed = stage

    def _reached(self, stage: str) -> None:
        if self._armed == stage:
            self._armed = ""
            self.fired.append(stage)
            self._action()

    def _watched(self, header: PushHeader) -> Any:
        part = self._begin(header)
        if part is None or header.kind != PushHeader.KIND_GRADIENTS or self._worker not in (None, header.id.worker):
            return part
        write, finish, received = part.write, part.finish, 0

        def watched_write(chunk: Any) -> None:
            nonlocal received
            write(chunk)
            received += len(chunk.data)
            if 2 * received >= header.total_bytes:
                self._reached("half")

        def watched_finish() -> Any:
            report = finish()
            self._reached("whole")
            return report

        part.write, part.finish = watched_write, watched_finish
        self._reached("header")
        return part

    def _carried_out(self, shard: int, entry: Entry) -> None:
        mine = shard == self._shard and isinstance(entry, Answer) and self._worker in (None, entry.worker)
        if mine and isinstance(entry, Answer) and entry.result is not None:
            self._reached("applied")
            if self._armed == "answered":
                asyncio.get_running_loop().call_soon(self._reached, "answered")
