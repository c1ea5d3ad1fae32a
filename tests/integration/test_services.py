"""What every shard serves beside training: health, reflection, typed refusals."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from local_cluster import LocalCluster

from grpc_ps.client.shared.errors import REASON_KEY
from grpc_ps.protos import parameter_server_pb2
from grpc_ps.protos.parameter_server_pb2_grpc import ParameterServerStub

DEADLINE = 10


@pytest.fixture
def channel() -> Iterator[grpc.Channel]:
    with LocalCluster(1) as cluster, grpc.insecure_channel(cluster.addresses) as opened:
        yield opened


def test_health(channel: grpc.Channel) -> None:
    stub = health_pb2_grpc.HealthStub(channel)
    response = stub.Check(health_pb2.HealthCheckRequest(), timeout=DEADLINE)
    assert response.status == health_pb2.HealthCheckResponse.SERVING


def test_reflection_lists_the_services(channel: grpc.Channel) -> None:
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    (response,) = stub.ServerReflectionInfo(iter([request]), timeout=DEADLINE)
    names = {service.name for service in response.list_services_response.service}
    assert {"grpc_ps.v1.ParameterServer", "grpc_ps.v1.Coordination", "grpc_ps.v1.Control"} < names
    assert "grpc.health.v1.Health" in names


def test_a_reader_before_the_job_is_open_is_told_so(channel: grpc.Channel) -> None:
    stub = ParameterServerStub(channel)
    with pytest.raises(grpc.RpcError) as caught:
        next(stub.Pull(parameter_server_pb2.PullRequest(), timeout=DEADLINE))
    assert caught.value.code() is grpc.StatusCode.FAILED_PRECONDITION
    assert (REASON_KEY, "NOT_OPEN") in caught.value.trailing_metadata()
