"""A server of files on loopback that may be slow, cut connections, or answer with something else."""

from __future__ import annotations

import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Says nothing: who asked may go away."""


class FileServer:
    """Serves bytes by name until the end of a `with`.

    Attributes:
        files: what is served.
        asked: names of what was asked for, in order.
        cut: bytes after which each answer is broken off; None for none.
        status: what is answered in place of 200.
        at: told the name and the number of bytes sent, before each piece of an answer; may wait.
    """

    PIECE = 4096

    def __init__(self, files: dict[str, bytes]) -> None:
        self.files = files
        self.asked: list[str] = []
        self.cut: int | None = None
        self.status = 200
        self.at: Callable[[str, int], None] = lambda name, sent: None
        self._server = _Server(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True)

    @property
    def address(self) -> str:
        """What stands before a file's name."""
        return f"http://127.0.0.1:{self._server.server_address[1]}/files"

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                name = self.path.removeprefix("/files/")
                outer.asked.append(name)
                data = outer.files.get(name)
                if data is None or outer.status != 200:
                    self.send_error(404 if data is None else outer.status)
                    return
                self.send_response(200)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                end = len(data) if outer.cut is None else outer.cut
                for start in range(0, end, outer.PIECE):
                    outer.at(name, start)
                    self.wfile.write(data[start : min(start + outer.PIECE, end)])
                    self.wfile.flush()

            def log_message(self, format: str, *args: object) -> None:
                pass

        return Handler

    def __enter__(self) -> FileServer:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(10)
