"""How often a worker's links have broken in a row, as `client.connection` counts it."""

from __future__ import annotations

SHORT_LIFE = 5.0
MAX_BREAKS = 10


class Breaks:
    """Breaks that came sooner than five seconds, without an answer of all shards in between; ten are borne."""

    def __init__(self) -> None:
        self._attached_at = 0.0
        self._count = 0

    def mended(self, now: float) -> None:
        """The links are up again."""
        self._attached_at = now

    def broke(self, now: float) -> None:
        """They are gone."""
        self._count = 1 if now - self._attached_at > SHORT_LIFE else self._count + 1

    def worked(self) -> None:
        """An answer has come."""
        self._count = 0

    @property
    def too_many(self) -> bool:
        """Whether the worker gives up."""
        return self._count > MAX_BREAKS
