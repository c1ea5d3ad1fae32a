"""Makes what a cluster needs for TLS and tokens: an authority, a pair for shards, a pair for clients, and tokens."""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import MappingProxyType

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from grpc_ps.client.shared.errors import UsageError

CA, CA_KEY = "ca.pem", "ca-key.pem"
SERVER, SERVER_KEY = "server.pem", "server-key.pem"
CLIENT, CLIENT_KEY = "client.pem", "client-key.pem"
TOKENS = "tokens"
TOKEN_FILES: Mapping[str, str] = MappingProxyType({f"{role}.token": role for role in ("reader", "worker", "admin")})
"""Clients' token files, one a role; the roles are those of `shared.tokens`."""

# A clock that is a little behind must not make a new certificate one of the future.
_EARLIER = timedelta(hours=1)


@dataclass(frozen=True)
class Pair:
    """A certificate with its private key."""

    certificate: x509.Certificate
    key: ec.EllipticCurvePrivateKey

    @property
    def certificate_pem(self) -> bytes:
        """The certificate as a file has it."""
        return self.certificate.public_bytes(Encoding.PEM)

    @property
    def key_pem(self) -> bytes:
        """The key as a file has it, without a password."""
        return self.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())


def make_authority(days: float, name: str = "grpc-ps authority") -> Pair:
    """Makes an authority, which certifies itself and others."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = _name(name)
    builder = _builder(subject, subject, key, days).add_extension(x509.BasicConstraints(True, 0), critical=True)
    builder = builder.add_extension(_usage(certify=True), critical=True)
    return Pair(builder.sign(key, hashes.SHA256()), key)


def make_pair(authority: Pair, name: str, hosts: Sequence[str], days: float) -> Pair:
    """Makes a pair that the authority certifies.

    With `hosts`, names and IP addresses, it is for a server of those, and for a client too: a shard is both. Without,
    it is for a client alone.
    """
    key = ec.generate_private_key(ec.SECP256R1())
    builder = _builder(_name(name), authority.certificate.subject, key, days)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    if hosts:
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        names = x509.SubjectAlternativeName([_host(host) for host in hosts])
        builder = builder.add_extension(names, critical=False)
    builder = builder.add_extension(x509.BasicConstraints(False, None), critical=True)
    builder = builder.add_extension(_usage(certify=False), critical=True)
    builder = builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
    return Pair(builder.sign(authority.key, hashes.SHA256()), key)


def write_all(folder: Path, hosts: Sequence[str], days: float) -> None:
    """Writes certificates, keys and tokens into a folder, which is made; keys and tokens are for their owner alone.

    Raises:
        UsageError: one of the files is there already, a host is none, or the folder cannot be written.
    """
    authority = make_authority(days)
    server = make_pair(authority, "grpc-ps shard", hosts, days)
    client = make_pair(authority, "grpc-ps client", (), days)
    tokens = {file: secrets.token_urlsafe(32) for file in TOKEN_FILES}
    known = "".join(f"{TOKEN_FILES[file]} {token}\n" for file, token in tokens.items())
    public = {CA: authority.certificate_pem, SERVER: server.certificate_pem, CLIENT: client.certificate_pem}
    secret = {
        CA_KEY: authority.key_pem,
        SERVER_KEY: server.key_pem,
        CLIENT_KEY: client.key_pem,
        TOKENS: known.encode(),
        **{file: f"{token}\n".encode() for file, token in tokens.items()},
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        # All are looked for before any is written: half a set would fit nothing.
        if there := [name for name in (*public, *secret) if (folder / name).exists()]:
            raise UsageError(
                f"{folder}: has {', '.join(there)} already; nothing was written: give another folder, or remove them"
            )
        for files, mode in ((public, 0o644), (secret, 0o600)):
            for name, content in files.items():
                _write(folder / name, content, mode)
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror}") from None


def _write(path: Path, content: bytes, mode: int) -> None:
    # Made with its mode, so that nobody can open it before; and only if it is new.
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        file.write(content)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, days: float
) -> x509.CertificateBuilder:
    now = datetime.now(timezone.utc)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, now + timedelta(days=days)) - _EARLIER)
        .not_valid_after(now + timedelta(days=days))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, certify: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not certify,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=certify,
        crl_sign=certify,
        encipher_only=False,
        decipher_only=False,
    )


def _host(text: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(text.strip("[]")))
    except ValueError:
        pass
    try:
        if not text or not text.isascii() or any(mark in text for mark in " :/"):
            raise ValueError
        return x509.DNSName(text)
    except ValueError:
        raise UsageError(f"--hosts: {text!r} is no host name and no IP address") from None
