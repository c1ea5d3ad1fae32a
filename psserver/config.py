"""A shard's own settings, checked when they are made."""

from __future__ import annotations

from dataclasses import dataclass, field

from grpc_ps.client.shared.checkpoint_flags import CheckpointSettings
from grpc_ps.client.shared.faults import FaultPlan
from grpc_ps.client.shared.image import ALIGNMENT
from grpc_ps.client.shared.security import Security, ServerSecurity, is_loopback
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.settings import Settings

MIB = 1 << 20

RESIDUALS_SHARE = 0.5
"""Of the grace time, for what workers keep back of their pushes."""


@dataclass(frozen=True, kw_only=True)
class ShardConfig:
    """What one shard process is.

    Attributes:
        shard: this shard's number; shard 0 is the lead.
        shards: how many the job has.
        host, port: where it listens; port 0 picks one.
        known_as: its address in the list of all shards; empty where there is no list.
        lead: the lead's address; empty on shard 0.
        presets: settings of the job that the lead fixes; empty elsewhere.
        limits: times of the lead.
        connect_seconds: how long a follower waits for the lead.
        grace_seconds: how long the end may take once a signal or the job asked for it.
        threads: of one update kernel.
        chunk_bytes: the largest chunk.
        checkpoints: where and when the job is saved; None for never.
        keep_alive: the shards go on when a job has ended well, for a worker that states a later end.
        faults: failures that are made on purpose.
        security: what protects this shard's port.
        link_security: what protects its link to the lead.
        metrics_host, metrics_port: where Prometheus finds its figures; port 0 picks one, None is for nowhere.
    """

    shard: int
    shards: int = 1
    host: str = "127.0.0.1"
    port: int = 0
    known_as: str = ""
    lead: str = ""
    presets: Settings = field(default_factory=dict)
    limits: Limits = field(default_factory=Limits)
    connect_seconds: float = 60.0
    grace_seconds: float = 5.0
    threads: int = 1
    chunk_bytes: int = MIB
    checkpoints: CheckpointSettings | None = None
    keep_alive: bool = False
    faults: FaultPlan = field(default_factory=FaultPlan)
    security: ServerSecurity = field(default_factory=ServerSecurity)
    link_security: Security = field(default_factory=Security)
    metrics_host: str = "127.0.0.1"
    metrics_port: int | None = None

    @property
    def is_out_of_reach(self) -> bool:
        """Whether it listens to its own machine alone, and is known by an address that may be meant for others."""
        known = self.known_as.rpartition(":")[0]
        return bool(known) and is_loopback(self.host) and not is_loopback(known)

    def __post_init__(self) -> None:
        if not 0 <= self.shard < self.shards:
            raise ValueError(f"shard {self.shard} must be 0 to {self.shards - 1}")
        if self.shard and not self.lead:
            raise ValueError(f"shard {self.shard} needs the lead's address")
        if self.chunk_bytes < ALIGNMENT or self.chunk_bytes % ALIGNMENT:
            raise ValueError(f"chunk_bytes {self.chunk_bytes} must be a multiple of {ALIGNMENT}")
