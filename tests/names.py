"""A name server that a test tells what its name means; gRPC asks it for `dns://HOST:PORT/name:port`."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType

_TYPE_A = 1
_NO_ERROR = b"\x81\x80"
# The name, as a pointer to the question's; type A, class IN; kept for an hour, if somebody kept it; four bytes.
_ANSWER = b"\xc0\x0c" + struct.pack(">HHIH", _TYPE_A, 1, 3600, 4)


class NameServer:
    """Answers every question with one IPv4 address, from one thread.

    Attributes:
        means: that address; a test replaces it.
        asked: how often gRPC has asked for it.
    """

    def __init__(self, means: str) -> None:
        self.means = means
        self.asked = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve, name="name-server", daemon=True)

    def target(self, port: int, name: str = "shard.test") -> str:
        """What a channel is opened with."""
        return f"dns://127.0.0.1:{self._socket.getsockname()[1]}/{name}:{port}"

    def __enter__(self) -> NameServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._socket.sendto(b"", self._socket.getsockname())
        self._thread.join(10)
        self._socket.close()

    def _serve(self) -> None:
        while True:
            query, asker = self._socket.recvfrom(512)
            if not query:
                return
            question = query[12 : query.index(b"\0", 12) + 5]
            known = question[-4:-2] == struct.pack(">H", _TYPE_A)
            self.asked += known
            counts = struct.pack(">HHHH", 1, known, 0, 0)
            answer = _ANSWER + socket.inet_aton(self.means) if known else b""
            self._socket.sendto(query[:2] + _NO_ERROR + counts + question + answer, asker)
