"""TLS, tokens and roles over real sockets: who gets in, what others are told, and that training works so."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from typing import Any

import grpc
import numpy as np
import pytest
from flaky_link import FlakyLink, links_to
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc
from light_worker import Gradient, constant, run_worker, run_workers, scalar
from local_cluster import LocalCluster
from secure_bed import SECRETS, STRANGER, Bed, known_tokens

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import (
    REASON_KEY,
    Forbidden,
    PeerUnreachable,
    PsError,
    Unauthenticated,
    Untrusted,
)
from grpc_ps.client.shared.security import Security, ServerSecurity
from grpc_ps.client.shared.tokens import Role
from grpc_ps.psserver.access import LEAST_ROLES, OPEN

SPEC = ParameterSpec(name="a_secret_layer", shape=(3,), dtype="float32")
PRESETS = {"learning_rate": 2.0**-10, "steps": 987_654, "seed": 424242}
DEADLINE = 10.0


@pytest.fixture(scope="module")
def bed() -> Bed:
    return Bed()


@pytest.fixture(scope="module")
def secured(bed: Bed) -> Iterator[LocalCluster]:
    """A lead with TLS and tokens, and a job with values."""
    cluster = LocalCluster(1, presets=PRESETS, **bed.cluster())
    with cluster, PSClient(cluster.addresses, security=bed.security(Role.WORKER)) as client:
        session = client.join("a_secret_model", [SPEC])
        session.open({SPEC.name: np.zeros(3, np.float32)})
        session.begin()
        yield cluster


def join(client: PSClient) -> None:
    client.join("a_secret_model", [SPEC], index=7)


CALLS: dict[str, Callable[[PSClient], object]] = {
    "pull": PSClient.pull,
    "status": PSClient.status,
    "set": lambda client: client.set(paused=False),
    "stop": PSClient.stop,
    "join": join,
}
REFUSED = [
    *((call, None, Unauthenticated) for call in CALLS),
    *((call, STRANGER, Unauthenticated) for call in CALLS),
    *((call, Role.READER, Forbidden) for call in ("set", "stop", "join")),
    *((call, Role.WORKER, Forbidden) for call in ("set", "stop")),
]


def assert_tells_nothing(error: PsError, cluster: LocalCluster) -> None:
    """A refusal names neither model, parameter, setting nor run, and no token."""
    told = f"{error} {error!r} {error.__cause__!r} {error.__cause__}"
    ids = cluster.servers[0]._replay.identity
    for secret in (
        *SECRETS,
        "a_secret",
        "a-token-of-nobody",
        "424242",
        "987654",
        str(ids.run),
        str(ids.generation),
    ):
        assert secret not in told


@pytest.mark.parametrize(("call", "who", "cls"), REFUSED)
def test_who_may_not_call_is_told_that_and_nothing_else(
    secured: LocalCluster, bed: Bed, call: str, who: Any, cls: type[PsError]
) -> None:
    security = bed.security(who) if isinstance(who, Role) else bed.security(None, token=who)
    with PSClient(secured.addresses, timeout=DEADLINE, security=security) as client, pytest.raises(cls) as caught:
        CALLS[call](client)
    assert type(caught.value) is cls
    assert caught.value.exit_code == 2
    assert_tells_nothing(caught.value, secured)


def test_who_may_call_is_served(secured: LocalCluster, bed: Bed) -> None:
    for role in Role:
        with PSClient(secured.addresses, security=bed.security(role)) as client:
            assert client.status().model == "a_secret_model"
            assert client.pull().values[SPEC.name].tolist() == [0, 0, 0]
    with PSClient(secured.addresses, security=bed.security(Role.ADMIN)) as client:
        assert client.set(paused=False).paused is False


def kind_of_call(channel: grpc.Channel, method: str) -> Any:
    """A function that makes that call with bytes and returns its first answer."""
    name = method.rpartition("/")[2]
    if name in ("PushPull", "Follow", "ServerReflectionInfo"):
        stream = channel.stream_stream(method, None, None)
        return lambda metadata: next(stream(iter([b"\xff\xff"]), timeout=DEADLINE, metadata=metadata))
    if name in ("Pull", "Watch"):
        answers = channel.unary_stream(method, None, None)
        return lambda metadata: next(answers(b"\xff\xff", timeout=DEADLINE, metadata=metadata))
    unary = channel.unary_unary(method, None, None)
    return lambda metadata: unary(b"\xff\xff", timeout=DEADLINE, metadata=metadata)


@pytest.mark.parametrize("method", [*LEAST_ROLES, "/grpc_ps.v1.Control/Unknown", "/Other/Call"])
def test_every_call_is_refused_before_a_byte_of_it_is_looked_at(secured: LocalCluster, bed: Bed, method: str) -> None:
    """The bytes are no message: a shard that read them would say so."""
    least = LEAST_ROLES.get(method, Role.ADMIN)
    with Security(ca=bed.ca).channel(secured.addresses) as channel:
        call = kind_of_call(channel, method)
        for role, status in (
            (None, grpc.StatusCode.UNAUTHENTICATED),
            *((role, grpc.StatusCode.PERMISSION_DENIED) for role in Role if role < least),
        ):
            metadata = () if role is None else (("authorization", f"Bearer {SECRETS[role - 1]}"),)
            with pytest.raises(grpc.RpcError) as caught:
                call(metadata)
            assert caught.value.code() is status
            assert dict(caught.value.trailing_metadata())[REASON_KEY] == status.name
        with pytest.raises(grpc.RpcError) as caught:
            call((("authorization", f"Bearer {SECRETS[Role.ADMIN - 1]}"),))
        assert caught.value.code() not in (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)


def test_health_needs_no_token_and_reflection_a_readers(secured: LocalCluster, bed: Bed) -> None:
    with Security(ca=bed.ca).channel(secured.addresses) as channel:
        (check,) = OPEN
        answer = channel.unary_unary(check, None, health_pb2.HealthCheckResponse.FromString)(b"", timeout=DEADLINE)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING
        stub = reflection_pb2_grpc.ServerReflectionStub(channel)
        request = reflection_pb2.ServerReflectionRequest(list_services="")
        metadata = bed.security(Role.READER).metadata(secured.addresses)
        (response,) = stub.ServerReflectionInfo(iter([request]), timeout=DEADLINE, metadata=metadata)
        assert len(response.list_services_response.service) == 5


SERVERS: dict[str, Callable[[Bed], dict[str, Any]]] = {
    "good": lambda bed: bed.cluster(),
    "plain": lambda bed: {"security": ServerSecurity(tokens=known_tokens())},
    "expired": lambda bed: bed.cluster(bed.pair(days=-1)),
    "foreign": lambda bed: bed.cluster(bed.pair(authority=bed.foreign)),
    "elsewhere": lambda bed: bed.cluster(bed.pair(("elsewhere",))),
    "mutual": lambda bed: bed.cluster(mutual=True),
}
DISTRUST: list[tuple[str, Callable[[Bed], Security], type[PsError], str]] = [
    (
        "good",
        lambda bed: Security(),
        PeerUnreachable,
        "it closes each connection at once (does it want TLS, --tls-ca, or is it no psserver?)",
    ),
    (
        "plain",
        lambda bed: bed.security(),
        Untrusted,
        "it does not speak TLS: start it with --tls-cert, or leave --tls-ca out",
    ),
    ("expired", lambda bed: bed.security(), Untrusted, "its certificate has expired: renew it (psctl certs)"),
    ("foreign", lambda bed: bed.security(), Untrusted, "its certificate is not by an authority of --tls-ca"),
    ("elsewhere", lambda bed: bed.security(), Untrusted, "its certificate is for another name: use one that is in it"),
    ("good", lambda bed: bed.security(server_name="x"), Untrusted, "its certificate is for another name"),
    (
        "mutual",
        lambda bed: bed.security(),
        PeerUnreachable,
        "it closes each TLS connection at once (does it want a client's",
    ),
    (
        "mutual",
        lambda bed: bed.security(own=bed.pair(authority=bed.foreign)),
        PeerUnreachable,
        "it closes each TLS conn",
    ),
]


@pytest.mark.parametrize(("shard", "security", "cls", "says"), DISTRUST)
def test_connections_that_tls_does_not_allow(
    bed: Bed, shard: str, security: Callable[[Bed], Security], cls: type[PsError], says: str
) -> None:
    with LocalCluster(1, presets=PRESETS, **SERVERS[shard](bed)) as cluster:
        with PSClient(cluster.addresses, security=security(bed)) as client, pytest.raises(cls) as caught:
            client.status()
        assert str(caught.value).startswith(f"{cluster.addresses}: {says}")
        assert_tells_nothing(caught.value, cluster)
        # A worker waits for what may change, at most as long as it is told, and not for what cannot.
        patience = DEADLINE if cls is Untrusted else 4.0
        patient = PSClient(cluster.addresses, timeout=patience, security=security(bed))
        with patient as client, pytest.raises(cls) as caught:
            join(client)
        assert says in str(caught.value)
        assert caught.value.exit_code == (2 if cls is Untrusted else 4)
        assert_tells_nothing(caught.value, cluster)


def test_a_name_that_is_in_the_certificate_may_be_given(bed: Bed) -> None:
    security = bed.security(server_name="elsewhere")
    cluster = LocalCluster(1, presets=PRESETS, **SERVERS["elsewhere"](bed))
    with cluster, PSClient(cluster.addresses, security=security) as client:
        assert client.status().phase == "empty"


def test_a_clients_certificate_opens_a_mutual_port(bed: Bed) -> None:
    with LocalCluster(2, presets={**PRESETS, "steps": 3}, **bed.cluster(mutual=True, tokens=False)) as cluster:
        security = Security(ca=bed.ca, own=bed.client)
        done = run_worker(cluster.addresses, [scalar()], constant(1.0), security=security)
        assert done.global_step == 3
        assert cluster.wait_ended() == [None, None]


@pytest.mark.parametrize("wrong", ["expired", "token", "role", "plain"])
def test_a_follower_that_may_not_follow_ends_with_the_reason(bed: Bed, wrong: str) -> None:
    config = {**bed.cluster(), "connect_seconds": 1.5}
    link: dict[str, tuple[Security, type[PsError], str]] = {
        "expired": (bed.security(ca=bed.foreign.certificate_pem), Untrusted, "not by an authority of --tls-ca"),
        "token": (bed.security(None, token=STRANGER), Unauthenticated, "knows no such token"),
        "role": (bed.security(Role.WORKER), Forbidden, "Follow is for the role admin"),
        "plain": (Security(), PeerUnreachable, "does it want TLS"),
    }
    security, cls, says = link[wrong]
    with LocalCluster(2, presets=PRESETS, **{**config, "link_security": security}) as cluster:
        ended = cluster.call(_first_end(cluster))
    assert type(ended) is cls
    assert says in str(ended)


async def _first_end(cluster: LocalCluster) -> BaseException | None:
    await asyncio.wait([cluster.ended[1]], timeout=DEADLINE)
    return cluster.ended[1].exception()


def through(links: list[FlakyLink]) -> str:
    return ",".join(link.address for link in links)


def cutting(links: list[FlakyLink]) -> Gradient:
    """Cuts the links of one shard in the middle of the third push, and those of the other in the sixth answer."""
    count = iter(range(1, 1000))

    def gradient(worker: int, batch: int, values: Any) -> Any:
        number = next(count)
        if number in (3, 6):
            links[number // 3 - 1].cut_after(2_000, to_client=number == 6)
        return constant(1.0)(worker, batch, values)

    return gradient


def test_training_with_tls_and_tokens_reconnects_and_never_shows_a_token(
    bed: Bed, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    specs = [ParameterSpec(name=name, shape=(10_000,), dtype="float32") for name in ("v", "w")]
    presets = {"learning_rate": 2.0**-10, "steps": 10, "mode": "sync", "workers": 2}
    with LocalCluster(2, presets=presets, chunk_bytes=4096, **bed.cluster()) as cluster:
        with links_to(cluster.addresses) as links:
            security = bed.security(Role.WORKER)

            def work(number: int) -> Any:
                gradient = cutting(links) if number == 0 else constant(1.0)
                return run_worker(through(links), specs, gradient, security=security)

            done = run_workers(2, work)
            assert [link.cuts for link in links] == [1, 1]
        assert cluster.wait_ended() == [None, None]
    assert [dict(outcome.outcomes) for outcome in done] == [{"APPLIED": 10}] * 2
    assert np.unique(list(done[0].parameters.values())).tolist() == [-10 / 1024]
    assert caplog.records
    assert not any(secret in caplog.text for secret in SECRETS)
