"""What a job's parameters mean for one shard."""

from __future__ import annotations

from grpc_ps.client.shared.blocks import Placement, place
from grpc_ps.client.shared.errors import Mismatch
from grpc_ps.client.shared.image import Layout, gradients_layout, values_layout
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.messages import specs_of


class Plan:
    """What a job's parameters mean for one shard.

    Attributes:
        values, gradients: layouts of the two images.
    """

    def __init__(self, job: job_pb2.JobSpec, shard: int, shard_count: int) -> None:
        self.job = job
        self.placement: Placement = place(specs_of(job), shard_count)
        if self.placement.fingerprint != job.plan_fingerprint:
            raise Mismatch("the worker places the parameters otherwise than this shard: are the versions equal?")
        self.values: Layout = values_layout(self.placement.shards[shard])
        self.gradients: Layout = gradients_layout(self.placement.shards[shard])
