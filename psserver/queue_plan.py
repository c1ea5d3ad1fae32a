"""How jobs of the queue are begun."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from grpc_ps.psserver.checkpoint_keeper import CheckpointKeeper
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.queue import Queue, QueuedJob
from grpc_ps.psserver.lead.resuming import Restored
from grpc_ps.psserver.lead.settings import Settings
from grpc_ps.psserver.queue_file import Kept

NewJob = Callable[[int, int, Restored | None], Job]
"""Makes the job of a generation: of that run and generation, from a checkpoint if there is one."""


@dataclass(frozen=True, kw_only=True)
class QueuePlan:
    """How jobs that clients submit are begun.

    Attributes:
        presets: settings that shard 0 fixes for all of them.
        lease: seconds without a call after which a standing worker is gone.
        new_job: what makes the job of that number, of its settings and the presets.
        recovery: seconds that a lead which is gone may take to come back; 0 where nothing is saved.
        folder: that of all checkpoints, with the queue in it; None without.
        kept: what that has.
    """

    presets: Settings
    lease: float
    new_job: Callable[[QueuedJob], NewJob]
    recovery: float = 0.0
    folder: CheckpointKeeper | None = None
    kept: Kept = field(default_factory=lambda: Kept(queue=Queue()))
