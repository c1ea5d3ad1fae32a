"""The contents of an address, as they come, within a time for all of it: a server that drips keeps nobody for ever."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import suppress
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from threading import Timer
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import HTTPHandler, HTTPSHandler, Request, build_opener

SILENCE = 30.0
"""Seconds for which a server may send nothing."""

_BLOCK = 1 << 18


class TransferError(Exception):
    """The contents cannot be had; `str()` says why, beginning with the address."""


class TooSlow(TransferError):
    """The time for all of it is over."""


def blocks_of(url: str, seconds: float) -> Iterator[bytes]:
    """The contents of an http or https address, in blocks; close it to give the connection back.

    Raises:
        TransferError: the server cannot be reached, refuses, or is silent. TooSlow: it takes longer than `seconds`.
    """
    deadline = _Deadline(seconds)
    opener = build_opener(_Handler(deadline), _TlsHandler(deadline))
    request = Request(url, headers={"User-Agent": "grpc-ps"})
    try:
        with opener.open(request, timeout=SILENCE) as response:
            while block := response.read(_BLOCK):
                yield block
    except HTTPError as error:
        error.close()
        raise TransferError(f"{url} answered {error.code} {error.reason}") from error
    except (OSError, HTTPException, ValueError) as error:
        deadline.check(url)
        reason = error.reason if isinstance(error, URLError) else error
        raise TransferError(f"cannot be downloaded from {url}: {reason or type(error).__name__}") from error
    finally:
        deadline.cancel()
    # A connection that was ended looks as if the server had nothing more.
    deadline.check(url)


class _Deadline:
    """Ends the connections that it watches when the time is over: waits for a server, headers and contents, all end.

    Its timer is a thread of its own; `_over` is set before anything is ended, and looked at afterwards.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._over = False
        self._watched: list[socket.socket] = []
        self._timer = Timer(seconds, self._end)
        self._timer.daemon = True
        self._timer.start()

    def watch(self, connection: socket.socket) -> None:
        """Ends this one as well. A copy is kept: TLS takes the socket itself over."""
        self._watched.append(connection.dup())
        if self._over:
            self._end()

    def _end(self) -> None:
        self._over = True
        for each in tuple(self._watched):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def check(self, url: str) -> None:
        """Raises TooSlow if the time is over."""
        if self._over:
            raise TooSlow(f"{url} has not given all of it within {self._seconds:.5g} s")

    def cancel(self) -> None:
        """Watches no more."""
        self._timer.cancel()
        for each in self._watched:
            each.close()


class _Watched(HTTPConnection):
    """A connection that its deadline ends."""

    deadline: _Deadline

    def connect(self) -> None:
        """Connects; before anything is said."""
        super().connect()
        self.deadline.watch(self.sock)


class _WatchedTls(HTTPSConnection, _Watched):
    """Connects as `_Watched` does, and then speaks TLS."""


class _Handler(HTTPHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def http_open(self, req: Request) -> Any:
        return self.do_open(self._connection, req)

    def _connection(self, host: str, **options: Any) -> _Watched:
        return _watched(_Watched(host, **options), self._deadline)


class _TlsHandler(HTTPSHandler):
    def __init__(self, deadline: _Deadline) -> None:
        super().__init__()
        self._deadline = deadline

    def https_open(self, req: Request) -> Any:
        return self.do_open(self._connection, req)

    def _connection(self, host: str, **options: Any) -> _Watched:
        return _watched(_WatchedTls(host, **options), self._deadline)


def _watched(connection: _Watched, deadline: _Deadline) -> _Watched:
    connection.deadline = deadline
    return connection
