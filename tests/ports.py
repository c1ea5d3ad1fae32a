"""Ports of loopback on which nobody listens."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

_kept = ExitStack()


@contextmanager
def held_port() -> Iterator[int]:
    """A port that nobody listens on, and that nobody else gets while the `with` lasts."""
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        port: int = holder.getsockname()[1]
        yield port


@contextmanager
def kept_port() -> Iterator[int]:
    """A port for a server that must be told one before it starts, and that Linux gives to nobody else meanwhile.

    It has such a port, though somebody is bound to it, if both of them ask to share it and nobody listens; whoever asks
    for any port gets another one.
    """
    with socket.socket() as keeper:
        keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        keeper.bind(("127.0.0.1", 0))
        port: int = keeper.getsockname()[1]
        yield port


def free_port() -> int:
    """The same kept until this process ends: also between two servers that have the port one after the other."""
    return _kept.enter_context(kept_port())


def has_ipv6() -> bool:
    """Whether this machine can listen on ::1."""
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True
