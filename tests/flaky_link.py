"""A TCP link that a test can cut: between a client and a server that know nothing of it."""

from __future__ import annotations

import selectors
import socket
import threading
from types import TracebackType


class FlakyLink:
    """Forwards connections to a server and cuts them when told, at once or after a number of bytes.

    One thread does everything; `_lock` guards the limits that tests set.

    Attributes:
        address: where clients connect, host:port.
    """

    def __init__(self, server: str) -> None:
        host, _, port = server.rpartition(":")
        self._server = (host, int(port))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._wake, self._woken = socket.socketpair()
        self._selector = selectors.DefaultSelector()
        self._peers: dict[socket.socket, socket.socket] = {}
        self._downstream: set[socket.socket] = set()
        self._lock = threading.Lock()
        self._limits: dict[bool, int | None] = {True: None, False: None}
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

    def cut(self) -> None:
        """Cuts all connections now."""
        self._cut = True
        self._wake.send(b"x")

    def cut_after(self, nbytes: int, *, to_client: bool) -> None:
        """Cuts all connections, once, when that many more bytes have gone one way."""
        with self._lock:
            self._limits[to_client] = nbytes

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
            with self._lock:
                limit = self._limits[to_client]
                if limit is not None and data:
                    self._cut = len(data) >= limit
                    self._limits[to_client] = None if self._cut else limit - len(data)
                    data = data[:limit]
            self._peers[source].sendall(data)
        except OSError:
            data = b""
        if not data:
            self._drop(source)

    def _drop(self, one: socket.socket) -> None:
        for end in (one, self._peers.pop(one)):
            self._peers.pop(end, None)
            self._downstream.discard(end)
            self._selector.unregister(end)
            end.close()

    def _drop_all(self) -> None:
        self._cut = False
        self.cuts += 1
        while self._peers:
            self._drop(next(iter(self._peers)))
