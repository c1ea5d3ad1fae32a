"""Senders that die in the middle of a push: memory comes back, nothing is changed, the next push works."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import numpy as np
import pytest
from flaky_link import FlakyLink
from half_a_call import HalfCalls
from light_worker import final_values
from local_cluster import LocalCluster
from raw_worker import RawWorker, push

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.protos.parameter_server_pb2 import Outcome, PushHeader
from grpc_ps.psserver.lead.limits import Limits

CHUNK = 1024
ELEMENTS = 1 << 18
SPEC = ParameterSpec(name="w", shape=(512, 512), dtype="float32")
SIZE = 4 * ELEMENTS
# The report's own number under `-m slow`.
TIMES = (6, pytest.param(20, marks=pytest.mark.slow))


def open_job(worker: RawWorker, cluster: LocalCluster) -> None:
    worker.join([SPEC])
    header = worker.header(1, SIZE)
    header.kind = PushHeader.KIND_VALUES
    stream = worker.attach(worker.job).send(*push(header, image(0.5), CHUNK))
    answer, values = stream.answer()
    assert (answer.release.batch, values) == (0, image(0.5))
    stream.cancel()
    cluster.wait_staged([0])


def image(value: float) -> bytes:
    return np.full(ELEMENTS, value, "<f4").tobytes()


def gradients(worker: RawWorker) -> list[bytes]:
    return [message.SerializeToString() for message in push(worker.header(2, SIZE), image(1.0), CHUNK)]


def check_unchanged(cluster: LocalCluster) -> None:
    step, values = final_values(cluster.addresses)
    assert (step, np.unique(values["w"]).tolist()) == (0, [0.5])


def check_good_push(worker: RawWorker) -> None:
    answer, values = worker.attach().send(*gradients(worker)).answer()
    assert (answer.result.outcome, answer.global_step) == (Outcome.OUTCOME_APPLIED, 1)
    assert values == image(-0.5)


def wait_received(cluster: LocalCluster, nbytes: int) -> None:
    """Waits until that much of the push has arrived."""

    async def received() -> int:
        places = cluster.servers[0]._replay.staging._places.values()
        return sum(place.part._received for place in places if place.part is not None)

    deadline = time.monotonic() + 60
    while (now := cluster.call(received())) < nbytes:
        assert time.monotonic() < deadline, f"only {now} bytes came"
        time.sleep(0.005)


@contextmanager
def opened() -> Iterator[tuple[LocalCluster, RawWorker]]:
    """A shard with small chunks, and the member that has opened its job."""
    with ExitStack() as stack:
        # The member beats only between two attempts.
        limits = Limits(lease=60.0)
        cluster = stack.enter_context(LocalCluster(1, presets={"learning_rate": 1.0}, limits=limits, chunk_bytes=CHUNK))
        worker = stack.enter_context(RawWorker(cluster.addresses))
        open_job(worker, cluster)
        yield cluster, worker


@pytest.mark.parametrize("times", TIMES)
def test_b24_processes_that_are_killed_half_way(tmp_path: Path, times: int) -> None:
    """Fault B24: chunks of 1 KiB, a gradient of 1 MB, kill -9 after half of it."""
    with opened() as (cluster, worker), HalfCalls() as senders:
        messages = gradients(worker)
        half = [worker.attach_message().SerializeToString(), *messages[: len(messages) // 2]]
        file = tmp_path / "messages"
        file.write_text("\n".join(message.hex() for message in half))
        for _ in range(times):
            senders.begin("push", cluster.addresses, str(file))
            wait_received(cluster, SIZE // 2)
            assert cluster.staged_bytes() == [SIZE]
            senders.kill()
            cluster.wait_staged([0])
            check_unchanged(cluster)
            worker.beat()
        check_good_push(worker)


@pytest.mark.parametrize("times", TIMES)
def test_b24_a_connection_that_is_cut_at_many_places(times: int) -> None:
    with opened() as (cluster, worker), FlakyLink(cluster.addresses) as link:
        messages = gradients(worker)
        for attempt in range(times):
            with RawWorker(link.address) as sender:
                sender.joined = worker.joined
                stream = sender.attach()
                link.cut_after(SIZE * (attempt + 1) // (times + 2), to_client=False)
                stream.send(*messages)
                assert stream.refusal()[1] == ""
            cluster.wait_staged([0])
            check_unchanged(cluster)
            worker.beat()
        check_good_push(worker)
