"""Who may call what: the table has every call, and the check looks at nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from grpc_health.v1 import health_pb2
from grpc_reflection.v1alpha import reflection_pb2
from protocol_page import FILES, names, rows
from secure_bed import SECRETS, known_tokens

from grpc_ps.client.shared.errors import Forbidden, PsError, Unauthenticated
from grpc_ps.client.shared.tokens import Role
from grpc_ps.psserver.access import LEAST_ROLES, OPEN, refused


def served() -> Iterator[str]:
    """Every method that a shard serves, as gRPC names it."""
    for file in (*FILES, health_pb2, reflection_pb2):
        for service in file.DESCRIPTOR.services_by_name.values():
            yield from (f"/{service.full_name}/{method.name}" for method in service.methods)


def role_of(metadata: object, method: str) -> PsError | None:
    return refused(known_tokens(), method, metadata)


def bearer(role: Role) -> list[tuple[str, str]]:
    return [("authorization", f"Bearer {SECRETS[role - 1]}")]


def test_the_table_has_every_call_that_is_served_and_no_other() -> None:
    assert set(LEAST_ROLES) | OPEN == set(served())
    assert not set(LEAST_ROLES) & OPEN


def test_the_roles_are_those_of_the_page() -> None:
    table = {call: role for role, calls, _ in rows("Roles") for call in names(calls)}
    assert table == {method.rpartition("/")[2]: role.name.lower() for method, role in LEAST_ROLES.items()} | {
        method.rpartition("/")[2]: "none" for method in OPEN
    }


@pytest.mark.parametrize("method", sorted({*served(), "/grpc_ps.v1.Control/New", "/other.Service/Method"}))
def test_every_call_wants_its_role(method: str) -> None:
    least = LEAST_ROLES.get(method, Role.ADMIN)
    for role in Role:
        refusal = role_of(bearer(role), method)
        allowed = method in OPEN or role >= least
        assert (refusal is None) is allowed
        if not allowed:
            name = method.rpartition("/")[2]
            says = f"{name} is for the role {least.name.lower()}; the caller's token has {role.name.lower()}"
            assert (type(refusal), str(refusal)) == (Forbidden, says)
    for metadata in (None, (), [("authorization", "Bearer a-token-of-nobody-here")]):
        assert (type(role_of(metadata, method)) is Unauthenticated) is (method not in OPEN)


@pytest.mark.parametrize(
    "metadata",
    [
        [("authorization", SECRETS[2])],
        [("authorization", "Bearer")],
        [("authorization", "Bearer ")],
        [("authorization", f"Basic {SECRETS[2]}")],
        [("authorization", f"Bearer  {SECRETS[2]}")],
        [("authorization", f"Bearer {SECRETS[2]}, Bearer {SECRETS[2]}")],
        [("authorization", f"Bearer {SECRETS[2]}")] * 2,
        [("x-authorization", f"Bearer {SECRETS[2]}")],
    ],
    ids=str,
)
def test_other_forms_are_no_token(metadata: list[tuple[str, str]]) -> None:
    assert type(role_of(metadata, "/grpc_ps.v1.Control/Status")) is Unauthenticated


def test_a_refusal_does_not_repeat_what_was_presented() -> None:
    refusal = role_of([("authorization", "Bearer what-a-caller-shows")], "/grpc_ps.v1.Control/Status")
    assert str(refusal) == "the cluster knows no such token as the caller shows (--token-file)"
    assert str(role_of([], "/grpc_ps.v1.Control/Status")) == (
        "the cluster takes no call without a token (--token-file)"
    )


def test_bytes_and_capitals_are_taken() -> None:
    assert role_of([("Authorization", f"bearer {SECRETS[2]}".encode())], "/grpc_ps.v1.Control/Set") is None
