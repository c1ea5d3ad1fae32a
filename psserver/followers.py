"""The followers' links, to be woken when the log has news."""

from __future__ import annotations

import asyncio
from collections import defaultdict


class FollowerLinks:
    """All links of all shards: a shard may have two for a moment, when the end of the old one is noticed late.

    Not guarded: used by the lead's event loop alone.
    """

    def __init__(self) -> None:
        self._links: defaultdict[int, list[asyncio.Event]] = defaultdict(list)

    def add(self, shard: int) -> asyncio.Event:
        """Takes a link; the event that is returned stands for it and is set when there is news."""
        news = asyncio.Event()
        self._links[shard].append(news)
        return news

    def remove(self, shard: int, news: asyncio.Event) -> bool:
        """Forgets a link; returns whether it was the shard's last one."""
        links = self._links[shard]
        links.remove(news)
        return not links

    def wake(self) -> None:
        """Tells every link that there is news."""
        for links in self._links.values():
            for news in links:
                news.set()
