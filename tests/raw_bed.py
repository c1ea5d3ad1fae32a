"""A shard and a worker that can send it anything, with what must hold afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
from light_worker import final_values
from local_cluster import LocalCluster
from raw_worker import Message, RawWorker, floats, push

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.protos.parameter_server_pb2 import Outcome, PushHeader, PushPullRequest
from grpc_ps.psserver.lead.limits import Limits

CHUNK = 1024
# 600 elements are 2400 bytes, 2432 with the padding: chunks of 1024, 1024 and 384 bytes.
SPEC = ParameterSpec(name="w", shape=(20, 30), dtype="float32")
SIZE = 2432
# Raw workers do not beat.
UNHURRIED = Limits(lease=60.0)
Messages = list[Message]


class Bed:
    """One shard and a member that has opened the job and holds batch 0 at step 0; its next push is number 2."""

    def __init__(self, cluster: LocalCluster, worker: RawWorker) -> None:
        self.cluster = cluster
        self.worker = worker

    def header(self, sequence: int = 2, total_bytes: int = SIZE) -> PushHeader:
        return self.worker.header(sequence, total_bytes)

    def good(self, value: float = 1.0, sequence: int = 2) -> Messages:
        """A push of gradients in three messages."""
        return [*push(self.header(sequence), floats(600, value), CHUNK)]

    def check_nothing_happened(self) -> None:
        self.cluster.wait_staged([0])
        step, values = final_values(self.cluster.addresses)
        assert (step, np.unique(values["w"]).tolist()) == (0, [0.5])

    def check_good_push(self) -> None:
        stream = self.worker.attach().send(*self.good())
        assert self.cluster.staged_bytes() == [SIZE]
        answer, image = stream.answer()
        assert (answer.result.sequence, answer.result.outcome) == (2, Outcome.OUTCOME_APPLIED)
        assert (answer.global_step, answer.release.batch) == (1, 1)
        assert image == floats(600, -0.5)
        stream.cancel()
        self.cluster.wait_staged([0])


@contextmanager
def opened_bed() -> Iterator[Bed]:
    """The bed with its job open, and no stream."""
    with (
        LocalCluster(1, presets={"learning_rate": 1.0}, limits=UNHURRIED, chunk_bytes=CHUNK) as cluster,
        RawWorker(cluster.addresses) as worker,
    ):
        worker.join([SPEC])
        header = worker.header(1, SIZE)
        header.kind = PushHeader.KIND_VALUES
        stream = worker.attach(worker.job).send(*push(header, floats(600, 0.5), CHUNK))
        answer, image = stream.answer()
        assert (answer.result.outcome, answer.release.batch) == (Outcome.OUTCOME_APPLIED, 0)
        assert image == floats(600, 0.5)
        stream.cancel()
        cluster.wait_staged([0])
        yield Bed(cluster, worker)


def merged(one: PushPullRequest, other: PushPullRequest) -> PushPullRequest:
    """Both in one message."""
    one.MergeFrom(other)
    return one
