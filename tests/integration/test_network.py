"""Connections are direct, whatever the environment says of proxies, and go to whichever address a shard listens on."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from commands import Command
from light_process import light_process
from light_worker import constant, run_worker, scalar
from local_cluster import LocalCluster
from ports import has_ipv6

from grpc_ps.client import PSClient
from grpc_ps.client.shared.security import Security

PARAMETERS = [scalar("w"), scalar("v")]
PRESETS = {"learning_rate": 2.0**-10, "steps": 20}
VARIABLES = ("http_proxy", "https_proxy", "grpc_proxy", "HTTP_PROXY", "HTTPS_PROXY", "all_proxy", "ALL_PROXY")


class Proxy:
    """Listens where the environment's proxy should be; hangs up on everybody.

    Attributes:
        address: its host:port.
        asked: the first line that each caller sent.
    """

    def __init__(self, listener: socket.socket) -> None:
        self._listener = listener
        self.address = f"127.0.0.1:{listener.getsockname()[1]}"
        self.asked: list[bytes] = []
        self.called = threading.Event()

    def serve(self) -> None:
        while True:
            caller, _ = self._listener.accept()
            with caller:
                said = caller.recv(1000)
            if not said:
                return
            self.asked.append(said.split(b"\r\n")[0])
            self.called.set()


@contextmanager
def proxy() -> Iterator[Proxy]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        one = Proxy(listener)
        thread = threading.Thread(target=one.serve, daemon=True)
        thread.start()
        yield one
        socket.create_connection(listener.getsockname()).close()
        thread.join(10)


@pytest.fixture
def trap(monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """A proxy that every variable names, and nothing that excludes anybody."""
    with proxy() as one:
        for name in VARIABLES:
            monkeypatch.setenv(name, f"http://{one.address}")
        for name in ("no_proxy", "NO_PROXY", "no_grpc_proxy"):
            monkeypatch.delenv(name, raising=False)
        yield one


def test_b62_a_proxy_of_the_environment_gets_no_connection(trap: Proxy) -> None:
    """Fault B62: two shards, of which one follows the other, a worker in this process and one in its own."""
    with LocalCluster(2, presets={**PRESETS, "max_workers": 2}) as cluster:
        with Command(*light_process(cluster.addresses, names=["w", "v"], pushes=5)) as other:
            assert other.wait() == 0, other.text
        done = run_worker(cluster.addresses, PARAMETERS, constant(1.0))
        assert cluster.wait_ended() == [None, None]
    assert done.global_step == 20
    assert trap.asked == []


def test_b62_a_malformed_proxy_does_not_matter(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    """Fault B62: without a scheme; nothing is printed of it either."""
    for name in VARIABLES:
        monkeypatch.setenv(name, "10.0.0.1:3128")
    with LocalCluster(2, presets=PRESETS) as cluster:
        run_worker(cluster.addresses, PARAMETERS, constant(1.0))
        assert cluster.wait_ended() == [None, None]
    assert cluster.history.step == 20
    assert "proxy" not in capfd.readouterr().err.lower()


def test_b62_use_proxy_is_the_way_back_to_it(trap: Proxy) -> None:
    """Fault B62: what `--use-proxy` makes of a client."""
    with LocalCluster(1) as cluster:
        with PSClient(cluster.addresses, timeout=20.0) as direct:
            direct.status()
        with Security(proxy=True).channel(cluster.addresses) as channel:
            call = channel.unary_unary("/grpc_ps.v1.Control/Status").future(b"", timeout=30)
            assert trap.called.wait(30)
            call.cancel()
        assert trap.asked[0] == b"CONNECT " + cluster.addresses.encode() + b" HTTP/1.1"


def names_of_this_machine() -> list[str]:
    """What a user may call it; a host name that does not resolve is no way to anything."""
    names = ["127.0.0.1", "localhost", "[::1]"]
    try:
        socket.getaddrinfo(socket.gethostname(), None)
    except OSError:
        return names
    return [*names, socket.gethostname()]


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
def test_b65_every_name_of_the_machine_leads_to_a_shard_that_listens_everywhere() -> None:
    """Fault B65: a worker for each name, on one job, whose shard takes both families."""
    with LocalCluster(1, host="::", presets={"learning_rate": 2.0**-10}) as cluster:
        port = cluster.addresses.rpartition(":")[2]
        for count, name in enumerate(names_of_this_machine(), 1):
            done = run_worker(f"{name}:{port}", PARAMETERS, constant(1.0), pushes=5)
            assert done.global_step == 5 * count


@pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")
@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost"])
def test_b65_localhost_finds_a_shard_on_either_loopback(host: str) -> None:
    """Fault B65: the worker says `localhost`, whatever the shard was told to listen on."""
    with LocalCluster(1, host=host, presets=PRESETS) as cluster:
        port = cluster.addresses.rpartition(":")[2]
        assert run_worker(f"localhost:{port}", PARAMETERS, constant(1.0)).global_step == 20
