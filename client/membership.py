"""What a worker gets when it joins a job."""

from __future__ import annotations

from dataclasses import dataclass

from grpc_ps.client.answers import Reply
from grpc_ps.protos import job_pb2


@dataclass(frozen=True, kw_only=True)
class Membership:
    """What a join gave: who the worker is, and the job that holds."""

    identity: job_pb2.Identity
    job: job_pb2.JobSpec
    opener: bool
    lease: float
    chunk_bytes: int
    global_step: int = 0
    # Seconds for which a shard that is gone may come back with its part of a checkpoint; zero means that it cannot.
    recovery: float = 0.0
    # The job had ended before the worker came.
    ended: Reply | None = None
