"""How many bytes a shard has exchanged."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Traffic:
    """Bytes of the messages of training streams and of reads, since the start. Of the event loop alone."""

    received: int = 0
    sent: int = 0
