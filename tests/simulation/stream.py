"""Links that break: training streams between workers and shards, and the followers' links to the lead."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

from simulation.events import Pipe

if TYPE_CHECKING:
    from simulation.shard_model import Shard
    from simulation.worker_model import Worker
    from simulation.world import World


class Stream:
    """A training stream. Each end learns of a break at a time of its own, and what is in flight may still arrive.

    Attributes:
        generation: the one in which its worker joined.
        inbox: answers that the worker has not read yet, with the version of the parameters that came with each.
        part, skipping: what the shard is receiving; `attached` and `served` are the shard's end, `open` the worker's.
    """

    __slots__ = (
        "attached",
        "down",
        "generation",
        "held",
        "inbox",
        "incarnation",
        "open",
        "part",
        "served",
        "shard",
        "skipping",
        "up",
        "worker",
        "world",
    )

    def __init__(self, world: World, worker: Worker, shard: Shard) -> None:
        self.world = world
        self.worker = worker
        self.generation, self.incarnation = worker.generation, worker.incarnation
        self.shard = shard
        delay = world.scenario.delay
        self.up = Pipe(world.agenda, world.draw, delay)
        self.down = Pipe(world.agenda, world.draw, delay)
        self.inbox: deque[tuple[Any, int]] = deque()
        self.part: Any = None
        self.skipping = False
        self.attached = False
        self.served = True
        self.open = True
        self.held = -1

    def __repr__(self) -> str:
        return f"stream {self.worker.worker}/{self.generation}.{self.incarnation}-{self.shard.number}"

    def break_(self) -> None:
        """The connection is gone."""
        world = self.world
        if world.draw() < 0.5:
            self.up.cut = self.down.cut = True
        patience = 10 * world.scenario.delay
        world.agenda.after(world.draw() * patience, self._worker_notices)
        world.agenda.after(
            world.draw() * patience * (20 if world.draw() < 0.1 else 1), self.shard.door.stream_ended, self
        )

    def die(self) -> None:
        """The shard's process is gone; the worker learns of it."""
        self.served = False
        self.up.cut = True
        self.world.agenda.after(self.world.draw() * 10 * self.world.scenario.delay, self._worker_notices)

    def _worker_notices(self) -> None:
        self.down.cut = True
        if self.open:
            self.open = False
            self.worker.stream_ended(self, "LOST")

    def close(self) -> None:
        """The worker's end closes it, or its process dies."""
        if self.open:
            self.open = False
            self.down.cut = True
            self.up.send(self.shard.door.stream_ended, self)

    def refuse(self, reason: str) -> None:
        """The shard's end closes it, with an error's name."""
        self.served = False
        self.up.cut = True
        self.down.send(self._refused, reason)

    def _refused(self, reason: str) -> None:
        if self.open:
            self.open = False
            self.worker.stream_ended(self, reason)


class FollowerLink:
    """A follower's link to a lead process; `position` is the last entry that was sent over it."""

    __slots__ = ("down", "lead", "position", "shard", "up", "world")

    def __init__(self, world: World, shard: Shard) -> None:
        self.world = world
        self.shard = shard
        self.lead = world.lead
        self.position = 0
        self.up = Pipe(world.agenda, world.draw, world.scenario.delay)
        self.down = Pipe(world.agenda, world.draw, world.scenario.delay)

    def __repr__(self) -> str:
        return f"link {self.shard.number} at {self.position}"

    def break_(self) -> None:
        """The connection is gone; each end learns of it at a time of its own."""
        world = self.world
        if world.draw() < 0.5:
            self.up.cut = self.down.cut = True
        patience = 10 * world.scenario.delay
        world.agenda.after(world.draw() * patience, self._follower_notices)
        world.agenda.after(world.draw() * patience * 3, self._lead_notices)

    def _follower_notices(self) -> None:
        self.down.cut = True
        self.shard.uplink.link_ended(self)

    def _lead_notices(self) -> None:
        self.up.cut = True
        if not self.lead.life.cut:
            self.lead.link_lost(self)
