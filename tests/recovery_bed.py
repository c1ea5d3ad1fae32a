"""A local cluster with checkpoints whose shards are killed, and started again at the same address."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any
from unittest.mock import patch

from flaky_link import FlakyLink
from history import wait_for
from local_cluster import LocalCluster
from shard_log import ShardLog

from grpc_ps.client.shared.checkpoint_flags import CheckpointSettings
from grpc_ps.client.shared.faults import SAVING_POINTS, FaultPlan, Faults
from grpc_ps.psserver import server as assembly
from grpc_ps.psserver.config import ShardConfig
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Apply, Entry
from grpc_ps.psserver.server import ShardServer

LIMITS = Limits(lease=5.0, recovery=20.0, save=10.0, retry=0.4, start=20.0, rejoin=20.0)

At = Callable[[int, str], None]


class Killed(BaseException):
    """What a thread of a shard that is dead gets where it would go on writing."""


class _Points(Faults):
    """Tells the bed of every point that a shard passes."""

    def __init__(self, plan: FaultPlan, who: str, at: Callable[[str], None]) -> None:
        super().__init__(plan, who)
        self._tell = at

    def at(self, point: str) -> None:
        self._tell(point)
        super().at(point)


class RecoveryBed(LocalCluster):
    """Shards behind links, saving into `directory`.

    A shard that is killed is gone as by SIGKILL: its links are cut before anything else and it says no word, writes
    nothing more to the disk and keeps nothing but what is on the disk. `kill` may be called by any thread, also from
    within the shard (a hook of the history, a point of writing).

    Attributes:
        doors: the link before each shard; what leads there does so across restarts.
        uplinks: for each follower its link to the lead's door; None for the lead.
        at: called with shard and point wherever a shard writes; may raise OSError, or kill.
        log: what the shards have logged.
    """

    def __init__(
        self,
        directory: Path,
        shards: int = 2,
        *,
        presets: Mapping[str, Any] | None = None,
        limits: Limits = LIMITS,
        at: At = lambda shard, point: None,
        checkpoints: Mapping[str, Any] | None = None,
        **config: Any,
    ) -> None:
        self._saving = checkpoints or {}
        super().__init__(shards, presets=presets, limits=limits, checkpoints=self.settings(directory), **config)
        self.directory = directory
        self.at = at
        self.doors: list[FlakyLink] = []
        self.uplinks: list[FlakyLink | None] = []
        self.log = ShardLog()
        self._links = ExitStack()
        self._old: list[asyncio.Future[None]] = []
        self._dead: set[ShardServer] = set()
        self._burials: dict[ShardServer, asyncio.Event] = {}
        self._tasks: set[asyncio.Task[None]] = set()

    def settings(self, directory: Path) -> CheckpointSettings:
        """The bed's own, with that folder."""
        return CheckpointSettings(directory=directory, **self._saving)

    @property
    def addresses(self) -> str:
        return ",".join(door.address for door in self.doors)

    def __enter__(self) -> RecoveryBed:
        self._loop.set_exception_handler(_unless_killed)
        self.log.begin()
        try:
            super().__enter__()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._links.close()
        self.log.end()

    async def _end(self) -> None:
        for server in list(self._dead):
            await self._burials[server].wait()
        self.ended += self._old
        await super()._end()

    def start(self, shard: int, **changed: Any) -> None:
        """Starts a shard that has ended, or was killed, at the address that it had.

        Args:
            changed: of its config.

        Raises:
            PsError: it refuses to start.
        """
        self.call(self._start(shard, **changed))

    def kill(self, *shards: int) -> None:
        """Kills shards, all at once."""
        for shard in shards:
            self._strike(shard)

    def until_dead(self, shard: int) -> None:
        """Waits until a shard has been killed by something else."""
        wait_for(lambda: self.servers[shard] in self._dead, f"shard {shard} is killed")

    def restart(self, *shards: int) -> None:
        """Kills shards and starts them again."""
        self.kill(*shards)
        for shard in sorted(shards):
            self.start(shard)

    def replace(self, shard: int) -> None:
        """Starts a second process of a follower that still is there; callers are led to it, by new connections."""
        self._old.append(self.ended[shard])
        self.uplinks[shard] = self._links.enter_context(FlakyLink(self.doors[0].address))

        async def start() -> None:
            server = self._make(shard)
            self._watch(server)
            await server.start()
            self._install(shard, server)

        self.call(start())

    def interrupt(self, *shards: int) -> None:
        """Sends them SIGTERM."""
        for shard in shards:
            self._loop.call_soon_threadsafe(self.servers[shard].interrupt)

    def _strike(self, shard: int) -> None:
        server = self.servers[shard]
        if server in self._dead:
            return
        self._burials[server] = asyncio.Event()
        self._dead.add(server)
        for link in self._links_of(shard):
            link.hold()
            link.cut()
        self._loop.call_soon_threadsafe(lambda: self._tasks.add(self._loop.create_task(self._bury(shard, server))))

    def _links_of(self, shard: int) -> list[FlakyLink]:
        return [link for link in (self.doors[shard], self.uplinks[shard]) if link is not None]

    async def _bury(self, shard: int, server: Any) -> None:
        """Lets nothing of a process remain that a killed one would not leave behind."""
        server.close = _nothing
        server._replay._backlog.clear()
        self.ended[shard].cancel()
        await asyncio.gather(self.ended[shard], return_exceptions=True)
        await server._server.stop(None)
        commits = server._coordinator.commits if server._coordinator is not None else None
        if server._coordinator is not None:
            for task in server._coordinator.background._tasks:
                task.cancel()
        keepers = {commits.keeper, server._coordinator.folder} if commits else set()
        pools = [server._kernels, server._savers, *(keeper._thread for keeper in keepers)]
        for pool in pools:
            await self._loop.run_in_executor(None, partial(pool.shutdown, wait=True, cancel_futures=True))
        for keeper in keepers:
            # As the kernel does: the lock is free, and the file says what it said.
            os.close(keeper._folder._lock._descriptor)
        for link in self._links_of(shard):
            link.release()
        self._burials[server].set()

    async def _start(self, shard: int, **changed: Any) -> None:
        if shard < len(self.servers):
            await self._until_gone(shard)
        server = self._make(shard, **changed)
        self._watch(server)
        try:
            await server.start()
        except BaseException:
            await server.close()
            raise
        self._install(shard, server)

    def _watch(self, server: Any) -> None:
        self.history.watch(server)
        carry_out = server._replay._carry_out
        server._replay._carry_out = lambda entry: None if server in self._dead else carry_out(entry)

    async def _until_gone(self, shard: int) -> None:
        server = self.servers[shard]
        if server in self._dead:
            await asyncio.wait_for(self._burials[server].wait(), 30)
        else:
            await asyncio.wait({self.ended[shard]}, timeout=20)
            assert self.ended[shard].done(), f"shard {shard} runs"

    def _make(self, shard: int, **changed: Any) -> ShardServer:
        if shard and shard >= len(self.uplinks):
            self.uplinks.append(self._links.enter_context(FlakyLink(self.doors[0].address)))
        uplink = self.uplinks[shard] if shard else None
        made: list[ShardServer] = []

        def at(point: str) -> None:
            for act in (lambda: None, lambda: self.at(shard, point)):
                act()
                if point in SAVING_POINTS and made and made[0] in self._dead:
                    raise Killed

        with patch.object(assembly, "Faults", lambda plan, who: _Points(plan, who, at)):
            config: dict[str, Any] = {
                "shard": shard,
                "shards": self._shards,
                "lead": uplink.address if uplink else "",
                "presets": {} if shard else self._presets,
                "limits": self._limits,
            }
            made.append(ShardServer(ShardConfig(**{**config, **self._config, **changed})))
        return made[0]

    def _install(self, shard: int, server: ShardServer) -> None:
        if shard == len(self.servers):
            self.doors.append(self._links.enter_context(FlakyLink(server.address)))
            if not shard:
                self.uplinks.append(None)
            self.servers.append(server)
            self.ended.append(asyncio.ensure_future(server.run()))
        else:
            self.doors[shard].lead_to(server.address)
            self.servers[shard] = server
            self.ended[shard] = asyncio.ensure_future(server.run())

    def ended_with(self, shard: int, seconds: float = 40.0) -> BaseException | None:
        """Waits until a shard has ended by itself; returns what it ended with."""

        async def wait() -> BaseException | None:
            done, _ = await asyncio.wait({self.ended[shard]}, timeout=seconds)
            assert done, f"shard {shard} has not ended"
            return self.ended[shard].exception()

        return self.call(wait(), seconds + 5)

    def at_step(self, step: int, action: Callable[[], None], shard: int = 0) -> None:
        """Does something, once, when a shard is about to apply the update to that step."""
        left = [action]

        def hook(where: int, entry: Entry) -> None:
            if left and where == shard and isinstance(entry, Apply) and entry.step == step:
                left.pop()()

        self.history.hooks.append(hook)


async def _nothing() -> None:
    pass


def _unless_killed(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    if not isinstance(context.get("exception"), Killed):
        loop.default_exception_handler(context)
