"""The port of a shard: exclusively this process's, on every address that its host means, or an error.

gRPC alone is content with one of several: `localhost` on a machine where somebody holds the port on 127.0.0.1 leaves a
server on ::1 alone, and `::` one without IPv6. Workers that take the other family then talk to somebody else.
"""

from __future__ import annotations

import errno
import logging
import os
import socket
from collections.abc import Callable, Sequence

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.logs import event

LOOPBACKS = ("127.0.0.1", "::1")
# What a machine says that lacks an address, or the whole family.
_NOT_HERE = (errno.EADDRNOTAVAIL, errno.EAFNOSUPPORT)

logger = logging.getLogger(__name__)


def bind(host: str, port: int, add: Callable[[str], int]) -> str:
    """Binds every address of this machine that `host` means to one port; returns host:port for people.

    Args:
        host: an address or a name, without brackets.
        port: 0 picks one.
        add: gRPC's way to bind `address:port`: returns the port, and raises RuntimeError or returns 0 if it has not.

    Raises:
        UsageError: the host means nothing here, or one of its addresses cannot have the port.
    """
    found = port
    for address in _addresses_here(host):
        _check_free(address, found, host)
        try:
            found = add(f"{bracketed(address)}:{found}")
        except RuntimeError as error:
            raise _refused(found, host, str(error)) from error
        if not found:
            raise _refused(port, host, "gRPC has not bound it")
    return f"{bracketed(host)}:{found}"


def bracketed(host: str) -> str:
    """A host as it stands before a colon."""
    return f"[{host}]" if ":" in host else host


def _addresses_here(host: str) -> Sequence[str]:
    """The addresses of a host that this machine has; what it lacks of several is logged."""
    meant = LOOPBACKS if host == "localhost" else _resolved(host)
    lacking = {address: number for address in meant if (number := _why_not(address, 0)) in _NOT_HERE}
    if len(lacking) == len(meant):
        why = "; ".join(f"{address}: {os.strerror(number)}" for address, number in lacking.items())
        raise UsageError(f"--host {host}: this machine cannot listen there ({why})")
    for address, number in lacking.items():
        event(logger, "not_listening", address=address, why=os.strerror(number))
    return [address for address in meant if address not in lacking]


def _resolved(host: str) -> Sequence[str]:
    try:
        found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:
        raise UsageError(f"--host {host}: is no address of this machine ({error.strerror or error})") from error
    return list(dict.fromkeys(str(address[0]) for _, _, _, _, address in found))


def _check_free(address: str, port: int, host: str) -> None:
    number = _why_not(address, port)
    if number == errno.EADDRINUSE:
        raise _refused(port, host, f"{bracketed(address)}:{port} is in use; choose another, or 0 for any")
    if number in (errno.EACCES, errno.EPERM):
        raise _refused(port, host, "this process may not have it; choose one from 1024 on")
    if number:
        raise _refused(port, host, os.strerror(number))


def _why_not(address: str, port: int) -> int:
    """The number of the error that listening there gives, 0 for none. As gRPC would: `::` takes both families."""
    try:
        with socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET) as probe:
            # As gRPC does: what connections of the last server have left behind is in nobody's way.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if address == "::":
                probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
            probe.bind((address, port))
    except OSError as error:
        return error.errno or errno.EINVAL
    return 0


def _refused(port: int, host: str, why: str) -> UsageError:
    return UsageError(f"port {port} on {host} cannot be had: {why}")
