"""What protects a connection: TLS and tokens, on both ends. Files are read once, when a process starts."""

from __future__ import annotations

import ipaddress
from dataclasses import dataclass, field
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import grpc
import grpc.aio

from grpc_ps.client.shared.channel_options import CLIENT_OPTIONS, Options
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.tokens import Token, Tokens

Metadata = tuple[tuple[str, str], ...]


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A certificate, with those that lead to its authority behind it, and its private key; PEM."""

    certificate: bytes = field(repr=False)
    key: bytes = field(repr=False)


@dataclass(frozen=True, kw_only=True)
class Security:
    """How a client protects its connections. Empty: neither TLS nor token, which is for loopback.

    Attributes:
        ca: certificates of the authorities that servers must be certified by, PEM; with it connections use TLS.
        own: the client's own certificate, for servers that want one.
        server_name: the name that servers' certificates must have, in place of the one in the address.
        token: shown with every call.
        insecure: whether the token may go to other machines without TLS, where it can be read on the way.
        proxy: whether connections go through the proxy that the environment names; they are direct otherwise, for such
            a proxy seldom knows the way to a shard.
    """

    ca: bytes | None = field(default=None, repr=False)
    own: KeyPair | None = None
    server_name: str = ""
    token: Token | None = None
    insecure: bool = False
    proxy: bool = False

    def __post_init__(self) -> None:
        if self.ca is None and (self.own is not None or self.server_name):
            raise UsageError("--tls-ca: must be given with other --tls flags: it is what servers are trusted by")

    @property
    def _credentials(self) -> grpc.ChannelCredentials:
        if self.own is None:
            return grpc.ssl_channel_credentials(self.ca)
        return grpc.ssl_channel_credentials(self.ca, self.own.key, self.own.certificate)

    @property
    def _options(self) -> Options:
        name: Options = (("grpc.ssl_target_name_override", self.server_name),) if self.server_name else ()
        return (*CLIENT_OPTIONS, *name, ("grpc.enable_http_proxy", int(self.proxy)))

    def channel(self, address: str) -> grpc.Channel:
        """Opens a channel to host:port."""
        if self.ca is None:
            return grpc.insecure_channel(address, options=self._options)
        return grpc.secure_channel(address, self._credentials, options=self._options)

    def aio_channel(self, address: str) -> grpc.aio.Channel:
        """Opens a channel of the running event loop."""
        if self.ca is None:
            return grpc.aio.insecure_channel(address, options=self._options)
        return grpc.aio.secure_channel(address, self._credentials, options=self._options)

    def metadata(self, address: str) -> Metadata | None:
        """Returns what every call to that address carries.

        Raises:
            UsageError: the token would go to another machine in the clear.
        """
        if self.token is None:
            return None
        if self.ca is None and not self.insecure and not is_loopback(address.rpartition(":")[0]):
            raise UsageError(
                f"{address}: the token of --token-file is not sent to another machine without TLS:"
                " give --tls-ca, or --insecure"
            )
        return self.token.metadata()


@dataclass(frozen=True, kw_only=True)
class ServerSecurity:
    """How a server protects its port. Empty: everybody who reaches the port may do everything.

    Attributes:
        own: the server's certificate and key; with it the port speaks TLS and nothing else.
        client_ca: authorities that clients must be certified by, PEM; None takes clients without a certificate.
        tokens: what callers must show one of, and may do with it.
    """

    own: KeyPair | None = None
    client_ca: bytes | None = field(default=None, repr=False)
    tokens: Tokens | None = field(default=None, compare=False)

    def add_port(self, server: Any, address: str) -> int:
        """Opens the port of a grpc.aio server and returns its number; RuntimeError if it cannot be had."""
        if self.own is None:
            return int(server.add_insecure_port(address))
        pairs = [(self.own.key, self.own.certificate)]
        credentials = grpc.ssl_server_credentials(pairs, self.client_ca, self.client_ca is not None)
        return int(server.add_secure_port(address, credentials))


def is_loopback(host: str) -> bool:
    """Whether a host, as in an address or in --host, can be reached from this machine alone. Names are not resolved."""
    try:
        return ipaddress.ip_address(host.strip("[]").partition("%")[0]).is_loopback
    except ValueError:
        return host.lower() == "localhost"


def listening(name: str) -> str:
    """Returns the --host of a shard that others know by that name: every address of its machine.

    A name may be another machine's, or none at all, on the machine itself. A loopback address is listened on alone, as
    it needs no protection.
    """
    if is_loopback(name):
        return name.strip("[]")
    return "::" if name.startswith("[") else "0.0.0.0"


def read_ca(flag: str, path: Path) -> bytes:
    """Reads certificates of authorities. Raises UsageError with flag, path and reason."""
    data = _read(flag, path)
    _certificates(flag, path, data)
    return data


def read_pair(certificate: Path | None, key: Path | None) -> KeyPair | None:
    """Reads the files of --tls-cert and --tls-key, None if neither is given.

    Raises:
        UsageError: names flag, path and reason: one is missing or no such file, they do not belong together, or the
            certificate does not hold now.
    """
    if certificate is None and key is None:
        return None
    if certificate is None or key is None:
        missing = "--tls-cert" if certificate is None else "--tls-key"
        raise UsageError(f"{missing}: must be given, --tls-cert and --tls-key go together")
    from cryptography.hazmat.primitives.serialization import load_pem_private_key

    pair = KeyPair(certificate=_read("--tls-cert", certificate), key=_read("--tls-key", key))
    first = _certificates("--tls-cert", certificate, pair.certificate)[0]
    try:
        public = load_pem_private_key(pair.key, None).public_key()
    except (ValueError, TypeError):  # TypeError: it is encrypted
        raise UsageError(f"--tls-key {key}: is no PEM file with a private key without password") from None
    if public != first.public_key():
        raise UsageError(f"--tls-key {key}: is not the key of --tls-cert {certificate}")
    now = datetime.now(timezone.utc)
    for when, wrong in (
        (first.not_valid_after_utc, now > first.not_valid_after_utc),
        (first.not_valid_before_utc, now < first.not_valid_before_utc),
    ):
        if wrong:
            says = "has expired on" if now > when else "holds only from"
            raise UsageError(f"--tls-cert {certificate}: {says} {when:%Y-%m-%d %H:%M} UTC")
    return pair


def _read(flag: str, path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UsageError(f"{flag} {path}: {error.strerror}") from None


def _certificates(flag: str, path: Path, data: bytes) -> list[Any]:
    # Only where TLS is asked for: loading it takes a tenth of a second.
    from cryptography.x509 import load_pem_x509_certificates

    try:
        return list(load_pem_x509_certificates(data))
    except ValueError:
        raise UsageError(f"{flag} {path}: is no PEM file with a certificate") from None
