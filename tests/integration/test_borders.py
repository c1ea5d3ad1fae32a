"""Requests that parse and cannot be meant: refused at the border, with a text that can be sent."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from fuzz_bed import said_by
from light_worker import scalar
from local_cluster import LocalCluster
from raw_worker import RawWorker

from grpc_ps.client.shared.codec import to_proto
from grpc_ps.protos.job_pb2 import JobSpec, Settings
from grpc_ps.protos.parameter_server_pb2 import JoinRequest
from grpc_ps.psserver.interceptors import MAX_TEXT

INVALID, PRECONDITION = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.FAILED_PRECONDITION


@pytest.fixture(scope="module")
def worker() -> Iterator[RawWorker]:
    with LocalCluster(1) as cluster, RawWorker(cluster.addresses) as opened:
        yield opened


def join(worker: RawWorker, **changes: object) -> tuple[grpc.StatusCode, str, str]:
    """How the lead refuses a join that has one thing otherwise."""
    fields = {
        "protocol": 1,
        "nonce": 7,
        "shard_count": 1,
        "job": JobSpec(model="m", parameters=[to_proto(scalar())]),
        "name": "raw",
        **changes,
    }
    with pytest.raises(grpc.RpcError) as refused:
        worker.stub.Join(JoinRequest(**fields), timeout=20)  # type: ignore[arg-type]
    return said_by(refused.value)


LONG = "x" * 4001


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"nonce": 0}, "a join without a nonce could be anybody's"),
        ({"name": LONG}, "name: a text has at most 4000 characters, not 4001"),
        ({"job": JobSpec(model=LONG)}, "model: a text has at most 4000 characters, not 4001"),
        ({"stated": Settings(data=LONG)}, "data: a text has at most 4000 characters, not 4001"),
        ({"defaults": Settings(until=LONG)}, "until: a text has at most 4000 characters, not 4001"),
    ],
    ids=["nonce", "name", "model", "stated", "defaults"],
)
def test_a_join_that_cannot_be_meant_is_refused(worker: RawWorker, changes: dict[str, object], says: str) -> None:
    assert join(worker, **changes) == (INVALID, "USAGE", says)


def test_a_refusal_is_never_too_long_to_be_sent(worker: RawWorker) -> None:
    """gRPC takes 8 KiB of metadata; these are characters of four bytes, which travel as twelve."""
    schedule = "\U0001f600" * 4000
    status, reason, text = join(worker, stated=Settings(schedule=schedule))
    assert (status, reason) == (PRECONDITION, "MISMATCH")
    assert text.startswith("schedule '\U0001f600")
    assert text.endswith("cosine:STEPS or cosine:STEPS:ALPHA")
    assert len(text) == MAX_TEXT + len("...")
