"""Why no shard answers at an address: gRPC's own words, which come as details of a status, in ours."""

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
# Of HTTP/1.1 or anything else that speaks in lines; of HTTP/2 without gRPC.
_STRANGERS = ("Failed parsing HTTP/2", "Expected SETTINGS frame", "http2 header with status")
_OTHER = re.compile(r"CERTIFICATE_VERIFY_FAILED: ([\w -]+)")


def untrusted(details: str) -> str | None:
    """Returns why the server is not to be trusted, in one clause; None if it is not that."""
    for theirs, ours in _UNTRUSTED:
        if theirs in details:
            return ours
    other = _OTHER.search(details)
    return f"its certificate is not accepted: {other[1]}" if other else None


def unlike(details: str) -> str | None:
    """Returns what may be wrong with what takes connections there and is no shard, in one clause; None for nothing.

    A server without TLS that is just going away closes them too, so trying again is right.
    """
    if any(theirs in details for theirs in _STRANGERS):
        return "something answers there that is no psserver (is it another program's port, or that of --metrics-port?)"
    if "Secure read failed" in details:
        return "it closes each TLS connection at once (does it want a client's certificate: --tls-cert, --tls-key?)"
    if not details.startswith("failed to connect"):
        return None
    if "Socket closed" in details or "Connection reset" in details:
        return "it closes each connection at once (does it want TLS, --tls-ca, or is it no psserver?)"
    if "before receiving SETTINGS" in details:
        return "it takes connections and says nothing (does it still start, was it stopped, or is it no psserver?)"
    return None


def unresolved(details: str) -> bool:
    """Whether the host's name could not be resolved."""
    return details.startswith(("errors resolving", "DNS resolution failed"))
