"""Certificates and tokens for tests, and what servers and clients are given of them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

from grpc_ps.client.certificates import Pair, make_authority, make_pair
from grpc_ps.client.shared.security import KeyPair, Security, ServerSecurity
from grpc_ps.client.shared.tokens import Role, Token, Tokens

LOCAL = ("localhost", "127.0.0.1")
TOKENS = {role: Token(f"the-secret-of-{role.name.lower()}") for role in Role}
SECRETS = tuple(f"the-secret-of-{role.name.lower()}" for role in Role)
STRANGER = Token("a-token-of-nobody-here")


def key_pair(pair: Pair) -> KeyPair:
    return KeyPair(certificate=pair.certificate_pem, key=pair.key_pem)


class Bed:
    """An authority, another one, and what they certify."""

    def __init__(self) -> None:
        self.authority = make_authority(30)
        self.ca = self.authority.certificate_pem
        self.foreign = make_authority(30, "somebody else")

    @cached_property
    def own(self) -> KeyPair:
        """A shard's pair as it should be."""
        return self.pair()

    @cached_property
    def client(self) -> KeyPair:
        """A client's pair."""
        return key_pair(make_pair(self.authority, "client", (), 30))

    def pair(self, hosts: Sequence[str] = LOCAL, *, days: float = 30, authority: Pair | None = None) -> KeyPair:
        """A shard's pair."""
        return key_pair(make_pair(authority or self.authority, "shard", hosts, days))

    def cluster(self, own: KeyPair | None = None, *, mutual: bool = False, tokens: bool = True) -> dict[str, Any]:
        """What `LocalCluster` takes for shards with TLS."""
        port = ServerSecurity(
            own=own or self.own, client_ca=self.ca if mutual else None, tokens=known_tokens() if tokens else None
        )
        link = Security(ca=self.ca, own=own or self.own, token=TOKENS[Role.ADMIN] if tokens else None)
        return {"security": port, "link_security": link}

    def security(self, role: Role | None = Role.ADMIN, **more: Any) -> Security:
        """A client's, with the token of that role."""
        return Security(**{"ca": self.ca, "token": None if role is None else TOKENS[role], **more})


def known_tokens() -> Tokens:
    return Tokens({token: role for role, token in TOKENS.items()})
