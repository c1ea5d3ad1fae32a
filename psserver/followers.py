"""The followers' links, to be woken when the log has news."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Sequence

from grpc_ps.protos.coordination_pb2 import ShardTimes, TableHeld


class FollowerLink:
    """One link of a shard, within one generation.

    Attributes:
        news: set when there are new entries, or the link is cut.
        cut: the generation is over: nothing that comes over this link counts any more.
        position: of the last entry that the shard had when the link was made.
        times: where the shard's time went, as it told last, and `tables`, what it held of them.
    """

    def __init__(self, position: int) -> None:
        self.news = asyncio.Event()
        self.cut = False
        self.position = position
        self.times = ShardTimes()
        self.tables: Sequence[TableHeld] = ()


class FollowerLinks:
    """All links of all shards: a shard may have two for a moment, when the end of the old one is noticed late.

    Not guarded: used by the lead's event loop alone.
    """

    def __init__(self) -> None:
        self._links: defaultdict[int, list[FollowerLink]] = defaultdict(list)

    def add(self, shard: int, position: int) -> FollowerLink:
        """Takes a link."""
        link = FollowerLink(position)
        self._links[shard].append(link)
        return link

    def remove(self, shard: int, link: FollowerLink) -> bool:
        """Forgets a link; returns whether it was the last one that the shard had in this generation."""
        links = self._links[shard]
        if link not in links:
            return False
        links.remove(link)
        return not links

    def newest(self, shard: int) -> FollowerLink | None:
        """The shard's newest link; None without one."""
        links = self._links.get(shard)
        return links[-1] if links else None

    def wake(self) -> None:
        """Tells every link that there is news."""
        for links in self._links.values():
            for link in links:
                link.news.set()

    def cut(self) -> None:
        """Ends every link: another generation begins."""
        links, self._links = self._links, defaultdict(list)
        for several in links.values():
            for link in several:
                link.cut = True
                link.news.set()
