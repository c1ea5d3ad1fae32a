"""Why a connection could not be made secure: gRPC's own words, which come as details of UNAVAILABLE, in ours."""

from __future__ import annotations

import re

# What BoringSSL and gRPC say of a server that must not be trusted. More attempts would not change it.
_UNTRUSTED = (
    ("certificate has expired", "its certificate has expired: renew it (psctl certs)"),
    ("certificate is not yet valid", "its certificate is not valid yet: is a clock wrong?"),
    ("unable to get local issuer", "its certificate is not by an authority of --tls-ca: is this the right file?"),
    ("self signed certificate", "its certificate is not by an authority of --tls-ca: is this the right file?"),
    ("self-signed certificate", "its certificate is not by an authority of --tls-ca: is this the right file?"),
    ("certificate signature failure", "its certificate is not by an authority of --tls-ca: is this the right file?"),
    ("Hostname Verification", "its certificate is for another name: use one that is in it, or give --tls-server-name"),
    ("WRONG_VERSION_NUMBER", "it does not speak TLS: start it with --tls-cert, or leave --tls-ca out"),
)
_OTHER = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([\w -]+)")


def untrusted(details: str) -> str | None:
    """Returns why the server is not to be trusted, in one clause; None if it is not that."""
    for theirs, ours in _UNTRUSTED:
        if theirs in details:
            return ours
    other = _OTHER.search(details)
    return f"its certificate is not accepted: {other[1]}" if other else None


def closed(details: str) -> str | None:
    """Returns what may be wrong with a server that takes connections and closes them at once, None if it is not that.

    A server without TLS that is just going away does the same, so trying again is right.
    """
    if "Secure read failed" in details:
        return "it closes each TLS connection at once (does it want a client's certificate: --tls-cert, --tls-key?)"
    if details.startswith("failed to connect") and "Socket closed" in details:
        return "it closes each connection at once (does it want TLS: --tls-ca?)"
    return None
