"""A shard's port is its own on every address that its host means, or it is refused with the address that is taken."""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import pytest
from ports import has_ipv6

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.psserver import binding
from grpc_ps.psserver.binding import bind

WITHOUT_IPV6 = {"::1": errno.EADDRNOTAVAIL, "::": errno.EAFNOSUPPORT}


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


class Bound:
    """Stands for gRPC: notes what it is told to bind, and gives 4321 where any port will do."""

    def __init__(self) -> None:
        self.addresses: list[str] = []

    def __call__(self, address: str) -> int:
        self.addresses.append(address)
        return int(address.rpartition(":")[2]) or 4321


@contextmanager
def listener(address: str) -> Iterator[int]:
    """Somebody else, who listens on a port of that address; "::" means both families, "::only" IPv6 alone.

    What else runs on this machine has that port in neither family.
    """
    host, only, _ = address.partition("only")
    with ExitStack() as stack:
        for _ in range(100):
            holder = stack.enter_context(opened(":" in host))
            if ":" in host:
                holder.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, bool(only) or host == "::1")
            holder.bind((host, 0))
            port = holder.getsockname()[1]
            if (host == "::" and not only) or is_free(port, ipv6=":" not in host):
                holder.listen()
                yield port
                return
        pytest.fail("no port is free in both families")


def opened(ipv6: bool) -> socket.socket:
    """A socket as a server's."""
    found = socket.socket(socket.AF_INET6 if ipv6 else socket.AF_INET)
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return found


def is_free(port: int, *, ipv6: bool) -> bool:
    """Whether nobody has that port in that family."""
    with opened(ipv6) as probe:
        if ipv6:
            probe.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        try:
            probe.bind(("::" if ipv6 else "0.0.0.0", port))
        except OSError:
            return False
    return True


@needs_ipv6
@pytest.mark.parametrize(
    ("held", "host", "named"),
    [
        ("127.0.0.1", "127.0.0.1", "127.0.0.1"),
        ("0.0.0.0", "127.0.0.1", "127.0.0.1"),
        ("::", "127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "0.0.0.0", "0.0.0.0"),
        ("0.0.0.0", "0.0.0.0", "0.0.0.0"),
        ("::", "0.0.0.0", "0.0.0.0"),
        # Of these gRPC alone would bind one family, and say nothing.
        ("127.0.0.1", "::", "[::]"),
        ("0.0.0.0", "::", "[::]"),
        ("::1", "::", "[::]"),
        ("::only", "::", "[::]"),
        ("127.0.0.1", "localhost", "127.0.0.1"),
        ("0.0.0.0", "localhost", "127.0.0.1"),
        ("::1", "localhost", "[::1]"),
        ("::only", "localhost", "[::1]"),
        ("::1", "::1", "[::1]"),
    ],
)
def test_b63_a_port_that_somebody_holds_is_refused(held: str, host: str, named: str) -> None:
    """Fault B63: whoever holds it, and on whatever address; having one family of two is no success."""
    with listener(held) as port, pytest.raises(UsageError) as refused:
        bind(host, port, Bound())
    text = f"port {port} on {host} cannot be had: {named}:{port} is in use; choose another, or 0 for any"
    assert str(refused.value) == text


@needs_ipv6
@pytest.mark.parametrize(("held", "host"), [("::1", "127.0.0.1"), ("127.0.0.1", "::1"), ("::only", "127.0.0.1")])
def test_b63_a_port_of_the_other_family_does_not_matter(held: str, host: str) -> None:
    bound = Bound()
    with listener(held) as port:
        where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        assert bind(host, port, bound) == where
    assert bound.addresses == [where]


@needs_ipv6
def test_b65_localhost_is_both_loopbacks_on_one_port() -> None:
    bound = Bound()
    assert bind("localhost", 0, bound) == "localhost:4321"
    assert bound.addresses == ["127.0.0.1:0", "[::1]:4321"]


def test_b65_without_ipv6_localhost_is_the_other_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Fault B65: such a host starts its shards all the same, and the log says what is missing."""
    monkeypatch.setattr(binding, "_why_not", lambda address, port: WITHOUT_IPV6.get(address, 0))
    bound = Bound()
    with caplog.at_level("INFO", "grpc_ps"):
        assert bind("localhost", 0, bound) == "localhost:4321"
    assert bound.addresses == ["127.0.0.1:0"]
    assert [record.getMessage().split()[:2] for record in caplog.records] == [["not_listening", "address=::1"]]


@pytest.mark.parametrize("host", ["::", "::1"])
def test_b65_without_ipv6_its_addresses_are_refused(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fault B65: gRPC alone would bind 0.0.0.0 where `::` is asked for."""
    monkeypatch.setattr(binding, "_why_not", lambda address, port: WITHOUT_IPV6.get(address, 0))
    with pytest.raises(UsageError, match=rf"^--host {host}: this machine cannot listen there \({host}: "):
        bind(host, 0, Bound())


def test_b65_an_address_of_another_machine_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--host 192\.0\.2\.99: this machine cannot listen there \(192\.0\.2\.99: "):
        bind("192.0.2.99", 0, Bound())


def test_b65_a_host_that_is_no_name_is_refused() -> None:
    with pytest.raises(UsageError, match=r"^--host no such host: is no address of this machine \("):
        bind("no such host", 0, Bound())


@pytest.mark.parametrize("number", [errno.EACCES, errno.EPERM])
def test_b63_a_privileged_port_is_refused(number: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(binding, "_why_not", lambda address, port: number if port else 0)
    with pytest.raises(UsageError, match=r"^port 80 on 127\.0\.0\.1 .* this process may not have it; choose one from"):
        bind("127.0.0.1", 80, Bound())


def test_b63_what_grpc_does_not_get_is_an_error() -> None:
    """Fault B63: somebody may be faster between our look and gRPC's; by some versions that is 0 and no exception."""

    def raises(address: str) -> int:
        raise RuntimeError("Failed to bind")

    for add in (raises, lambda address: 0):
        with pytest.raises(UsageError, match=r"^port 0 on 127\.0\.0\.1 cannot be had: "):
            bind("127.0.0.1", 0, add)
