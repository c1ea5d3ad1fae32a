"""Whether certificates, keys and tokens can be used, and for how long."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from grpc_ps.client.doctor.check import USAGE, Check, fail, ok, warn
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.security import read_ca, read_pair
from grpc_ps.client.shared.tokens import read_token, read_tokens

# Days before the end of a certificate from which on it is worth a word.
SOON = 30


def check_authorities(path: Path, now: datetime | None = None) -> Check:
    """Looks at the file of --tls-ca."""
    return _checked("--tls-ca", lambda: _lasting("--tls-ca", path, read_ca("--tls-ca", path), now))


def check_pair(certificate: Path | None, key: Path | None, now: datetime | None = None) -> Check:
    """Looks at the files of --tls-cert and --tls-key: that they belong together, and whom the certificate is for."""

    def look() -> Check:
        pair = read_pair(certificate, key)
        if pair is None or certificate is None:
            raise LookupError("one of them is given")
        return _lasting("--tls-cert", certificate, pair.certificate, now)

    return _checked("--tls-cert", look)


def check_token(path: Path) -> Check:
    """Looks at the file of --token-file, a server's with roles or a client's; says nothing of what is in it."""

    def look() -> Check:
        try:
            read_token(path)
        except UsageError:
            roles = sorted({role.name.lower() for role in read_tokens(path).values()})
            return ok("--token-file", f"{path}: tokens of a server, for {', '.join(roles)}")
        return ok("--token-file", f"{path}: one token")

    return _checked("--token-file", look)


def _checked(name: str, look: Callable[[], Check]) -> Check:
    try:
        return look()
    except UsageError as error:
        return fail(name, str(error), error.exit_code)


def _lasting(name: str, path: Path, data: bytes, now: datetime | None) -> Check:
    from cryptography.x509 import load_pem_x509_certificates

    certificates = load_pem_x509_certificates(data)
    ends = min(certificate.not_valid_after_utc for certificate in certificates)
    days = (ends - (now or datetime.now(timezone.utc))).days
    text = f"{path}: {_names(certificates[0])}"
    if days < 0:
        return fail(name, f"{text}; has expired on {ends:%Y-%m-%d}: make new ones (psctl certs)", USAGE)
    if days < SOON:
        return warn(name, f"{text}; expires in {days} days: make new ones (psctl certs)")
    return ok(name, f"{text}; {days} days left")


def _names(certificate: Any) -> str:
    from cryptography.x509 import DNSName, ExtensionNotFound, IPAddress, SubjectAlternativeName

    try:
        names = certificate.extensions.get_extension_for_class(SubjectAlternativeName).value
    except ExtensionNotFound:
        return str(certificate.subject.rfc4514_string())
    return "for " + ", ".join(str(value) for kind in (DNSName, IPAddress) for value in names.get_values_for_type(kind))
