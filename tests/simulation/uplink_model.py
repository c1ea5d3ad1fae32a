"""A shard's way to the lead: on shard 0 a call, elsewhere a link, as `link.py` keeps it.

Mirrored: when the link is made again the shard says which entry it took last, and reports behind that every part that
it holds whole, a mean that is not applied yet, and an overflow; entries continue behind the last one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from simulation.messages import square
from simulation.stream import FollowerLink

from grpc_ps.psserver.lead.log import Entry

if TYPE_CHECKING:
    from simulation.shard_model import Shard
    from simulation.world import World

RETRY = 0.2
ACKNOWLEDGE_EVERY = 8


class Uplink:
    """Reports go up, entries come down.

    Attributes:
        link: the newest link, None while there is none.
        overflowed: the parameter and step of an update that went wrong.
        away_until: the lead is out of reach until then; `dead` when the process is gone.
    """

    def __init__(self, world: World, shard: Shard) -> None:
        self.world = world
        self.shard = shard
        self.link: FollowerLink | None = None
        self.overflowed: tuple[str, int] | None = None
        self.away_until = 0.0
        self.dead = False
        self._acknowledged = 0

    def report(self, kind: str, *report: Any) -> None:
        """Tells the lead; `kind` is the name of its method."""
        world, lead = self.world, self.world.lead
        if self.shard.number == 0:
            if kind == "whole":
                lead.whole(0, *report)
            else:  # it comes of an entry, and leads to others: those are behind the entries at hand
                world.agenda.after(0.0, getattr(lead, kind), 0, *report)
        elif self.link is not None:
            self.link.up.send(getattr(lead, kind), self.shard.number, *report)
            self._perhaps_cut(self.link, f"cut follower when {kind}")

    def _perhaps_cut(self, link: FollowerLink, when: str) -> None:
        world = self.world
        if world.cut_chance and world.draw() < world.cut_chance:
            world.checker.seen[when] += 1
            link.break_()

    def connect(self) -> None:
        """Makes the link, and says what this shard has."""
        shard = self.shard
        if self.link is not None or self.dead:
            return
        if self.world.agenda.now < self.away_until:
            self.world.agenda.after(RETRY, self.connect)
            return
        self.link = link = FollowerLink(self.world, shard)
        self._acknowledged = shard.delivered
        lead = self.world.lead
        link.up.send(lead.hello, link, shard.boot, shard.delivered)
        for whole in shard.staging.all_whole():
            link.up.send(lead.whole, shard.number, whole)
        if shard.reduced is not None:
            position, pushes = shard.reduced
            link.up.send(lead.reduced, shard.number, position, square(shard.number, pushes))
        if self.overflowed is not None:
            link.up.send(lead.overflow, shard.number, *self.overflowed)

    def link_ended(self, link: FollowerLink) -> None:
        """The link is gone: makes it anew."""
        if self.link is link:
            self.link = None
            self.world.agenda.after(RETRY, self.connect)

    def entries(self, link: FollowerLink, entries: list[tuple[int, Entry]]) -> None:
        """Entries of the log arrive."""
        if self.link is not link:
            return
        shard = self.shard
        for position, entry in entries:
            shard.deliver(position, entry)
        self._perhaps_cut(link, "cut follower when applied")
        if shard.delivered - self._acknowledged >= ACKNOWLEDGE_EVERY:
            self._acknowledged = shard.delivered
            link.up.send(self.world.lead.acknowledge, shard.number, shard.delivered)
