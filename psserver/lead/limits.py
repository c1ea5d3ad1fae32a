"""The times after which the lead stops waiting."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """Times of the lead, in seconds; every wait for somebody who is not there ends by one of them.

    A worker that beats is waited for: slowness is not death.

    Attributes:
        lease: without a heartbeat for so long a worker counts as lost.
        link: a shard whose link is down for so long counts as lost.
        start: for so long the job waits for the opener's values, and in sync for its workers.
        rejoin: sync: for so long an open round waits for a replacement of a lost worker.
        pin: a snapshot is kept for a reader for so long.
        call: at every shard, for so long a caller may be silent before its first message, and the log may take to bring
            what it waits for: its admission, or its snapshot.
        recovery: with checkpoints, a shard that is gone is waited for so long instead.
        save: for so long a checkpoint may be on its way to the disk.
        residuals: a checkpoint waits for so long for what workers keep back of their pushes; `last_residuals` is the
            same where the job was told to end, or a shard was: a part of the grace time.
        retry: for so long the last checkpoint is tried again when it cannot be written.
    """

    lease: float = 10.0
    link: float = 10.0
    start: float = 300.0
    rejoin: float = 60.0
    pin: float = 30.0
    call: float = 10.0
    recovery: float = 120.0
    save: float = 600.0
    residuals: float = 30.0
    last_residuals: float = 2.5
    retry: float = 5.0
