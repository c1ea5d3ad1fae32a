"""What an address has, within a time: a server that drips keeps nobody for ever."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from file_server import FileServer

from grpc_ps.models.datasets import download
from grpc_ps.models.datasets.download import Published, fetch
from grpc_ps.models.datasets.transfer import TooSlow, blocks_of
from grpc_ps.models.spec import DataFileError

OK = b"HTTP/1.1 200 OK\r\n"


@contextmanager
def dripping(begins: bytes) -> Iterator[str]:
    """The address of a server whose answer begins so, and goes on a byte at a time without an end."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def drip() -> None:
            caller, _ = listener.accept()
            with caller, suppress(OSError):
                caller.sendall(begins)
                while not over.wait(0.02):
                    caller.sendall(b"x")

        over, thread = threading.Event(), threading.Thread(target=drip, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
        over.set()
        thread.join(10)
        assert not thread.is_alive(), "the connection has been ended"


@pytest.mark.parametrize(
    "begins",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX-Long: ",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 99999\r\n\r\n",
    ],
    ids=["before-the-head", "in-the-head", "without-a-length", "with-a-length"],
)
def test_a_server_that_drips(begins: bytes) -> None:
    with dripping(begins) as address, pytest.raises(TooSlow) as caught:
        list(blocks_of(address, 0.25))
    assert str(caught.value) == f"{address} has not given all of it within 0.25 s"


def test_what_comes_in_time_is_given_whole() -> None:
    with FileServer({"one": bytes(range(256)) * 5000}) as server:
        assert b"".join(blocks_of(f"{server.address}/one", 60.0)) == server.files["one"]


def test_the_time_for_a_published_file_goes_by_its_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Half a second and a quarter, for this test. The server would take half an hour, and is never silent."""
    monkeypatch.setattr(download, "GRACE", 0.5)
    monkeypatch.setattr(download, "LEAST_RATE", 400_000)
    file = Published(name="one.gz", size=100_000, sha256="0" * 64, holds=("one",))
    with dripping(OK + b"\r\n") as address, pytest.raises(DataFileError) as caught:
        fetch(tmp_path / "new", [file], address, lambda name, done, total: None)
    said = f"{address}/one.gz has not given all of it within 0.75 s: try again, or another --download-url"
    assert str(caught.value) == f"{tmp_path / 'new' / 'one.gz'}: {said}"
    assert not (tmp_path / "new").exists()
