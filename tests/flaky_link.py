"""A TCP link that a test can cut: between a client and a server that know nothing of it."""

from __future__ import annotations

import selectors
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from types import TracebackType


class FlakyLink:
    """Forwards connections to a server; cuts them when told, at once or after a number of bytes, or holds them up.

    One thread does everything; `_lock` guards the limits that tests set. Of what the ends write after `cut` or `hold`
    has returned nothing arrives.

    Attributes:
        address: where clients connect, host:port.
    """

    def __init__(self, server: str, host: str = "127.0.0.1", port: int = 0) -> None:
        self.lead_to(server)
        self._listener = socket.create_server((host, port))
        self.address = f"{host}:{self._listener.getsockname()[1]}"
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._downstream: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._limits: dict[bool, int | None] = {True: None, False: None}
        self._held = {True: False, False: False}
        self._kept: list[tuple[socket.socket, bytes]] = []
        self._cut = self._closing = False
        self.cuts = 0
        self._thread = threading.Thread(target=self._run, name="flaky-link", daemon=True)

    def __enter__(self) -> FlakyLink:
        self._selector.register(self._listener, selectors.EVENT_READ)
        self._selector.register(self._woken, selectors.EVENT_READ)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._wake.send(b"x")
        self._thread.join(10)
        for one in (self._listener, self._wake, self._woken):
            one.close()

    def lead_to(self, server: str) -> None:
        """Forwards new connections to another server."""
        there, _, behind = server.rpartition(":")
        self._server = (there, int(behind))

    def cut(self) -> None:
        """Cuts all connections now."""
        self._cut = True
        self._wake.send(b"x")

    def cut_after(self, nbytes: int, *, to_client: bool) -> None:
        """Cuts all connections, once, when that many more bytes have gone one way."""
        with self._lock:
            self._limits[to_client] = nbytes

    def hold(self, *, to_client: bool | None = None) -> None:
        """Keeps what goes one way, or both; new connections are held as well, and none is cut."""
        for direction in (True, False) if to_client is None else (to_client,):
            self._held[direction] = True

    def release(self) -> None:
        """Lets everything pass again: first what was kept, in order."""
        self._held = {True: False, False: False}
        self._wake.send(b"x")

    def _run(self) -> None:
        while not self._closing:
            for key, _ in self._selector.select():
                self._handle(key.fileobj)  # type: ignore[arg-type]  # only sockets are registered
        self._drop_all()
        self._selector.close()

    def _handle(self, ready: socket.socket) -> None:
        if ready is self._listener:
            self._accept()
        elif ready is self._woken:
            self._woken.recv(100)
            self._let_pass()
        elif ready in self._peers:
            self._forward(ready)
        if self._cut:
            self._drop_all()

    def _accept(self) -> None:
        client, _ = self._listener.accept()
        try:
            server = socket.create_connection(self._server, 5)
        except OSError:
            client.close()
            return
        self._peers.update({client: server, server: client})
        self._downstream.add(server)
        for one in (client, server):
            self._selector.register(one, selectors.EVENT_READ)

    def _forward(self, source: socket.socket) -> None:
        to_client = source in self._downstream
        try:
            data = source.recv(1 << 16)
            if self._cut:
                return
            if data and self._held[to_client]:
                self._kept.append((source, data))
                return
            self._let_pass()
            self._peers[source].sendall(self._limited(data, to_client))
        except OSError:
            data = b""
        if not data:
            self._drop(source)

    def _limited(self, data: bytes, to_client: bool) -> bytes:
        """What may pass of it before the connections are cut."""
        with self._lock:
            limit = self._limits[to_client]
            if limit is None or not data:
                return data
            self._cut = len(data) >= limit
            self._limits[to_client] = None if self._cut else limit - len(data)
            return data[:limit]

    def _let_pass(self) -> None:
        """Forwards what was kept of ways that are open again."""
        kept, self._kept = self._kept, []
        for source, data in kept:
            if self._held[source in self._downstream]:
                self._kept.append((source, data))
            elif source in self._peers:
                with suppress(OSError):  # the end itself tells that it is gone
                    self._peers[source].sendall(data)

    def _drop(self, one: socket.socket) -> None:
        self._kept = [(source, data) for source, data in self._kept if source is not one]
        for end in (one, self._peers.pop(one)):
            self._peers.pop(end, None)
            self._downstream.discard(end)
            self._selector.unregister(end)
            end.close()

    def _drop_all(self) -> None:
        self._cut = False
        self._kept = []
        self.cuts += 1
        while self._peers:
            self._drop(next(iter(self._peers)))


@contextmanager
def links_to(addresses: str) -> Iterator[list[FlakyLink]]:
    """A link before each server of a list "host:port,host:port"."""
    with ExitStack() as stack:
        yield [stack.enter_context(FlakyLink(address)) for address in addresses.split(",")]


@contextmanager
def links_between_shards() -> Iterator[tuple[Callable[[str], str], list[FlakyLink]]]:
    """What `LocalCluster` takes as `lead_seen_as`, and the links that it makes: one for each follower."""
    links: list[FlakyLink] = []
    with ExitStack() as stack:

        def through_link(address: str) -> str:
            links.append(stack.enter_context(FlakyLink(address)))
            return links[-1].address

        yield through_link, links
