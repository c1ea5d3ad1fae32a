"""A cluster in this process: real gRPC servers on real sockets, on one event loop in a thread."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from types import TracebackType
from typing import Any, TypeVar

from history import History, wait_for

from grpc_ps.psserver.config import ShardConfig
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.server import ShardServer

T = TypeVar("T")
DEADLINE = 60.0


class LocalCluster:
    """Shards 0 to `shards` - 1 on loopback, for as long as the `with` lasts.

    `lead_seen_as` gives followers another address of the lead: of a link that the test can cut.

    Attributes:
        servers: the shards; their state may be looked at, with `call` for what must run on the loop.
        ended: for each shard the future of its `run`.
        history: what the shards carried out.
    """

    def __init__(
        self,
        shards: int = 1,
        *,
        presets: Mapping[str, Any] | None = None,
        limits: Limits | None = None,
        lead_seen_as: Callable[[str], str] = lambda address: address,
        **config: Any,
    ) -> None:
        self._lead_seen_as = lead_seen_as
        self._shards = shards
        self._presets = presets or {}
        self._limits = limits or Limits()
        self._config = config
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="local-cluster", daemon=True)
        self.servers: list[ShardServer] = []
        self.ended: list[asyncio.Future[None]] = []
        self.history = History()

    @property
    def addresses(self) -> str:
        """The list of shards as `--ps` takes it."""
        return ",".join(server.address for server in self.servers)

    def call(self, work: Coroutine[Any, Any, T], seconds: float = DEADLINE) -> T:
        """Runs a coroutine on the cluster's loop."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(seconds)

    def staged_bytes(self) -> list[int]:
        """Memory that each shard holds for pushes."""

        async def count() -> list[int]:
            return [server._replay.staging.bytes() for server in self.servers]

        return self.call(count())

    def wait_staged(self, expected: list[int], seconds: float = DEADLINE) -> None:
        """Waits until the shards hold that much memory for pushes: a stream's end is noticed a moment later."""
        deadline = time.monotonic() + seconds
        while (staged := self.staged_bytes()) != expected:
            assert time.monotonic() < deadline, f"staged bytes are {staged}, not {expected}"
            time.sleep(0.01)

    @property
    def _job(self) -> Any:
        lead: Any = self.servers[0]
        return lead._coordinator.job

    def until_members(self, count: int, *, worker: int) -> None:
        """Lets a worker wait until the job has that many, or is over: then some have left before the others.

        One that is no member any more, for the job has gone back, has to find that out before it can come again.
        """

        def complete() -> bool:
            job = self._job
            return len(job.members) >= count or job.done is not None or job.members.at(worker) is None

        wait_for(complete, f"{count} workers")

    def end_lease(self, worker: int) -> None:
        """Lets the lease of a worker that beats no more end now, however long leases are, and waits until it is missed.

        With short ones every other worker would be lost, too, whose process or thread gets no processor for as long.
        """

        async def end(incarnation: int) -> int:
            """Which life it was, or 0 when that is over."""
            member = self._job.members.at(worker)
            if member is None or incarnation not in (0, member.incarnation):
                return 0
            member.last_beat -= 2 * self._job.limits.lease
            return int(member.incarnation)

        if incarnation := self.call(end(0)):
            # Again and again, for the last heartbeat may still be on its way.
            wait_for(lambda: not self.call(end(incarnation)), f"the end of worker {worker}")

    def __enter__(self) -> LocalCluster:
        self._thread.start()
        for shard in range(self._shards):
            self.call(self._start(shard))
        return self

    async def _start(self, shard: int) -> None:
        server = ShardServer(
            ShardConfig(
                shard=shard,
                shards=self._shards,
                lead=self._lead_seen_as(self.servers[0].address) if shard else "",
                presets={} if shard else self._presets,
                limits=self._limits,
                **self._config,
            )
        )
        self.history.watch(server)
        await server.start()
        self.servers.append(server)
        self.ended.append(asyncio.ensure_future(server.run()))

    def wait_ended(self, seconds: float = DEADLINE) -> list[BaseException | None]:
        """Waits until every shard has ended by itself; returns what each ended with."""

        async def gather() -> list[Any]:
            return await asyncio.wait_for(asyncio.gather(*self.ended, return_exceptions=True), seconds)

        return self.call(gather(), seconds + 5)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.call(self._end())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(DEADLINE)
        self._loop.close()

    async def _end(self) -> None:
        for future in self.ended:
            future.cancel()
        await asyncio.wait_for(asyncio.gather(*self.ended, return_exceptions=True), DEADLINE)
