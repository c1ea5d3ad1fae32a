"""A shard's way to the lead: on shard 0 a call, elsewhere a link, as `link.py` keeps it.

Mirrored: when the link is made again the shard says which entry it took last, and in which generation. When the lead
has welcomed it, it drops all it has if that was another generation, and else reports every part that it holds whole, a
mean that is not applied yet, its newest part of a checkpoint, and an overflow; entries continue behind the last one.
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
        away_until: the lead is out of reach until then.
        leaving: the process was told to end.
    """

    def __init__(self, world: World, shard: Shard) -> None:
        self.world = world
        self.shard = shard
        self.link: FollowerLink | None = None
        self.overflowed: tuple[str, int] | None = None
        self.away_until = 0.0
        self.leaving = False
        self._acknowledged = 0

    def report(self, kind: str, *report: Any) -> None:
        """Tells the lead; `kind` is the name of its method."""
        world, lead = self.world, self.world.lead
        if self.shard.number == 0:
            if kind == "whole":
                lead.whole(0, *report)
            else:  # it comes of an entry, and leads to others: those are behind the entries at hand
                world.agenda.enter(world.agenda.now, self.shard.era, getattr(lead, kind), (0, *report))
        elif self.link is not None:
            self._tell(self.link, kind, *report)
            self._perhaps_cut(self.link, f"cut follower when {kind}")

    def _perhaps_cut(self, link: FollowerLink, when: str) -> None:
        world = self.world
        if world.cut_chance and world.draw() < world.cut_chance:
            world.seen[when] += 1
            link.break_()

    def connect(self) -> None:
        """Makes the link, and says what this shard has."""
        shard = self.shard
        if self.link is not None or shard.life.cut:
            return
        lead = self.world.lead
        if self.world.agenda.now < self.away_until or lead.life.cut:
            self.world.agenda.after(RETRY, self.connect)
            return
        self.link = link = FollowerLink(self.world, shard)
        self._acknowledged = shard.delivered
        link.up.send(lead.hello, link, shard.boot, shard.generation, shard.delivered)

    def welcome(self, link: FollowerLink, generation: int, position: int) -> None:
        """The lead knows this shard now, and says which generation it is in, and behind which entry it goes on."""
        if self.link is not link:
            return
        shard = self.shard
        if generation != shard.generation:
            shard.end_generation()
            shard.begin(generation, self.world.checkers[generation])
            self._acknowledged = 0
        shard.delivered = max(shard.delivered, position)
        for whole in shard.staging.all_whole():
            self._tell(link, "whole", whole)
        if shard.reduced is not None:
            position, pushes = shard.reduced
            self._tell(link, "reduced", position, square(shard.number, pushes))
        if shard.part is not None:
            self._tell(link, "saved", shard.part)
        if self.overflowed is not None:
            self._tell(link, "overflow", *self.overflowed)
        if self.leaving:
            self._tell(link, "leaving")

    def _tell(self, link: FollowerLink, kind: str, *report: Any) -> None:
        link.up.send(getattr(link.lead, kind), self.shard.number, *report)

    def leave(self) -> None:
        """The process was told to end."""
        self.leaving = True
        if self.link is not None and self.shard.generation == self.link.lead.generation:
            self._tell(self.link, "leaving")

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
            self._tell(link, "acknowledge", shard.delivered)
