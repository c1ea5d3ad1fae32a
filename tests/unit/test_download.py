"""Downloading published files from a server on loopback: whole and right, or refused and not there."""

from __future__ import annotations

import errno
import hashlib
import io
import os
import socket
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
from file_server import FileServer

from grpc_ps.models.datasets import ChoiceError, cifar, download_data, idx, transfer
from grpc_ps.models.datasets.download import LOCK, Published, fetch
from grpc_ps.models.spec import DataFileError

DATA = {"one.gz": np.random.default_rng(1).bytes(100_000), "two.gz": b"\x00\x01two" * 1000}


def published(name: str, data: bytes, *holds: str, archive: bool = False) -> Published:
    digest = hashlib.sha256(data).hexdigest()
    own = holds or (name.removesuffix(".gz"),)
    return Published(name=name, size=len(data), sha256=digest, holds=own, archive=archive)


FILES = tuple(published(name, data) for name, data in DATA.items())


def quiet(name: str, done: int, total: int) -> None:
    """Shows nothing."""


@pytest.fixture
def server() -> Iterator[FileServer]:
    with FileServer(dict(DATA)) as found:
        yield found


def refusal(folder: Path, address: str, patience: float = 60.0) -> str:
    with pytest.raises(DataFileError) as caught:
        fetch(folder, FILES, address, quiet, patience)
    text = str(caught.value)
    assert "\n" not in text
    return text


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def test_what_is_missing_is_fetched_and_shown(tmp_path: Path, server: FileServer) -> None:
    folder = tmp_path / "new" / "folder"
    shown: list[tuple[str, int, int]] = []
    fetch(folder, FILES, f"{server.address}/", lambda *told: shown.append(told))
    assert contents(folder) == DATA
    for name, data in DATA.items():
        done = [count for told, count, total in shown if told == name and total == len(data)]
        assert (done[0], done[-1]) == (0, len(data))
        assert done == sorted(done)
    (folder / "two.gz").unlink()
    fetch(folder, FILES, server.address, quiet)
    assert (contents(folder), server.asked) == (DATA, ["one.gz", "two.gz", "two.gz"])


def test_b89_nobody_is_asked_for_what_is_there_and_the_folder_may_be_read_only(tmp_path: Path) -> None:
    (tmp_path / "one").write_bytes(b"unpacked will do")
    (tmp_path / "two.gz").write_bytes(DATA["two.gz"])
    tmp_path.chmod(0o555)
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        fetch(tmp_path, FILES, f"http://127.0.0.1:{nobody.getsockname()[1]}", quiet)
        tmp_path.chmod(0o755)
        assert sorted(contents(tmp_path)) == ["one", "two.gz"]
        assert not (tmp_path / LOCK).exists()
        (tmp_path / "one").unlink()
        text = refusal(tmp_path, f"http://127.0.0.1:{nobody.getsockname()[1]}")
    assert text.startswith(f"{tmp_path / 'one.gz'}: cannot be downloaded from http://127.0.0.1:")
    assert text.endswith("Connection refused")


@pytest.mark.parametrize("cut", [0, 1, 50_000, 99_999])
def test_a_connection_that_is_cut(tmp_path: Path, server: FileServer, cut: int) -> None:
    server.cut = cut
    url = f"{server.address}/one.gz"
    expected = f"{tmp_path / 'one.gz'}: {url} gave {cut} bytes; expected 100000: try again"
    assert refusal(tmp_path, server.address) == expected
    assert contents(tmp_path) == {}
    server.cut = None
    fetch(tmp_path, FILES, server.address, quiet)
    assert contents(tmp_path) == DATA


def test_another_file_than_the_published_one(tmp_path: Path, server: FileServer) -> None:
    url = f"{server.address}/one.gz"
    server.files["one.gz"] = bytes(100_000)
    found, expected = (hashlib.sha256(data).hexdigest() for data in (bytes(100_000), DATA["one.gz"]))
    text = f"{url} has not what was published: its sha256 is {found}, expected {expected}"
    assert refusal(tmp_path, server.address) == f"{tmp_path / 'one.gz'}: {text}"
    server.files["one.gz"] = DATA["one.gz"] + b"more"
    assert " gave 100004 bytes or more; expected 100000" in refusal(tmp_path, server.address)
    server.files["one.gz"] = b"<!DOCTYPE html><html>"
    assert " gave 21 bytes, an HTML page; expected 100000" in refusal(tmp_path, server.address)
    assert contents(tmp_path) == {}


def test_of_a_folder_that_nothing_came_into_nothing_is_left(tmp_path: Path, server: FileServer) -> None:
    """Also not of its path; what was there before stays, and what has come."""
    (tmp_path / "there").mkdir()
    server.status = 503
    for folder in (tmp_path / "there" / "new" / "er", tmp_path / "there"):
        refusal(folder, server.address)
    assert [path.name for path in tmp_path.rglob("*")] == ["there"]
    server.status = 200
    del server.files["two.gz"]
    refusal(tmp_path / "half", server.address)
    assert contents(tmp_path / "half") == {"one.gz": DATA["one.gz"]}


@pytest.mark.parametrize(("status", "says"), [(404, "404 Not Found"), (503, "503 Service Unavailable")])
def test_a_server_that_refuses(tmp_path: Path, server: FileServer, status: int, says: str) -> None:
    server.status = status
    assert refusal(tmp_path, server.address) == f"{tmp_path / 'one.gz'}: {server.address}/one.gz answered {says}"


def test_a_server_that_falls_silent(tmp_path: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    over = threading.Event()
    server.at = lambda name, sent: None if sent < 50_000 else over.wait(30) and None
    monkeypatch.setattr(transfer, "SILENCE", 0.2)
    text = refusal(tmp_path, server.address)
    over.set()
    assert text == f"{tmp_path / 'one.gz'}: cannot be downloaded from {server.address}/one.gz: timed out"
    assert contents(tmp_path) == {}


def test_a_full_disk(tmp_path: Path, server: FileServer, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patched:
        patched.setattr(os, "fsync", full)
        assert refusal(tmp_path, server.address) == f"{tmp_path}: cannot be written: No space left on device"
    assert contents(tmp_path) == {}
    fetch(tmp_path, FILES, server.address, quiet)
    assert contents(tmp_path) == DATA


def test_a_folder_that_cannot_be_made(tmp_path: Path, server: FileServer) -> None:
    (tmp_path / "file").write_bytes(b"")
    folder = tmp_path / "file" / "folder"
    assert refusal(folder, server.address) == f"{folder}: cannot be written: Not a directory"


def tar_of(members: dict[str, bytes]) -> bytes:
    with io.BytesIO() as out:
        with tarfile.open(fileobj=out, mode="w:gz") as tar:
            for name, data in members.items():
                info = tarfile.TarInfo(name)
                info.size = len(data)
                tar.addfile(info, io.BytesIO(data))
            link = tarfile.TarInfo("batches/link.bin")
            link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
            tar.addfile(link)
        return out.getvalue()


def test_an_archive_is_unpacked_into_the_folder_and_nowhere_else(tmp_path: Path) -> None:
    members = {"batches/a.bin": b"aaa", "../../b.bin": b"bbb", "batches/readme.html": b"<html>", "/c.sh": b"#!"}
    data = tar_of(members)
    folder = tmp_path / "deep" / "folder"
    with FileServer({"all.tar.gz": data}) as server:
        fetch(folder, [published("all.tar.gz", data, "a.bin", "b.bin", archive=True)], server.address, quiet)
        assert contents(folder) == {"a.bin": b"aaa", "b.bin": b"bbb"}
        with pytest.raises(DataFileError, match=r"all\.tar\.gz: has no link\.bin in it"):
            fetch(folder, [published("all.tar.gz", data, "link.bin", archive=True)], server.address, quiet)
    assert sorted(path.name for path in tmp_path.rglob("*.bin")) == ["a.bin", "b.bin"]


def test_a_disk_that_is_full_while_an_archive_is_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = tar_of({"batches/a.bin": b"aaa", "batches/b.bin": b"bbb"})
    file, sync = published("all.tar.gz", data, "a.bin", "b.bin", archive=True), os.fsync

    def full(descriptor: int) -> None:
        if os.readlink(f"/proc/self/fd/{descriptor}").endswith("/.b.bin.part"):
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(descriptor)

    with FileServer({"all.tar.gz": data}) as server:
        with monkeypatch.context() as patched:
            patched.setattr(os, "fsync", full)
            with pytest.raises(DataFileError, match="cannot be written: No space left on device"):
                fetch(tmp_path, [file], server.address, quiet)
        assert contents(tmp_path) == {"a.bin": b"aaa"}
        fetch(tmp_path, [file], server.address, quiet)
    assert contents(tmp_path) == {"a.bin": b"aaa", "b.bin": b"bbb"}


PROGRAM = """
import sys
from pathlib import Path
from grpc_ps.models.datasets.download import Published, fetch
file = Published(name="one.gz", size=100000, sha256=sys.argv[3], holds=("one",))
fetch(Path(sys.argv[1]), [file], sys.argv[2], lambda name, done, total: print(name, done, flush=True))
"""


def process(folder: Path, server: FileServer, stack: ExitStack) -> subprocess.Popen[str]:
    """One that prints something if it gets the file; killed at the end, if it still runs."""
    command = [sys.executable, "-c", PROGRAM, str(folder), server.address, FILES[0].sha256]
    started = stack.enter_context(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
    stack.callback(started.kill)
    return started


def test_b89_eight_processes_fetch_at_once_and_one_is_killed(tmp_path: Path, server: FileServer) -> None:
    """Fault B89: the dead one's lock and half file are in nobody's way, and the others fetch the file once."""
    half, go_on = threading.Event(), threading.Event()

    def hold(name: str, sent: int) -> None:
        if sent >= 50_000 and not go_on.is_set():
            half.set()
            go_on.wait(60)

    server.at = hold
    with ExitStack() as stack:
        stack.callback(go_on.set)
        first = process(tmp_path, server, stack)
        assert half.wait(60)
        others = [process(tmp_path, server, stack) for _ in range(7)]
        assert first.poll() is None
        assert (tmp_path / ".one.gz.part").exists()
        first.kill()
        first.wait(10)
        go_on.set()
        ended = [other.communicate(timeout=60) for other in others]
    assert [other.returncode for other in others] == [0] * 7
    assert contents(tmp_path) == {"one.gz": DATA["one.gz"]}
    assert server.asked == ["one.gz"] * 2, "the killed one's and one more"
    assert sum(bool(printed) for printed, _ in ended) == 1
    with ExitStack() as stack:
        assert process(tmp_path, server, stack).wait(60) == 0
    assert len(server.asked) == 2, "nobody is asked for what is there"


def test_b89_a_process_that_gets_on_with_nothing_is_not_waited_for(tmp_path: Path, server: FileServer) -> None:
    half, go_on = threading.Event(), threading.Event()
    server.at = lambda name, sent: None if sent < 50_000 else half.set() or (go_on.wait(60) and None)
    with ExitStack() as stack:
        stack.callback(go_on.set)
        process(tmp_path, server, stack)
        assert half.wait(60)
        text = refusal(tmp_path, server.address, patience=0.3)
    assert text == f"{tmp_path}: another process downloads into it, and got nothing for 0.3 s"


def test_which_files_are_fetched_and_where_they_go(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[Path, list[str], str]] = []

    def noted(folder: Path, files: Sequence[Published], base: str, progress: object) -> None:
        calls.append((folder, [file.name for file in files], base))

    for module in (idx, cifar):
        monkeypatch.setattr(module, "fetch", noted)
    for data, base in (("digits", None), ("digits", "http://here"), ("cifar10", None)):
        download_data(data, name=None, directory=tmp_path, base=base, progress=quiet)
    (tmp_path / "mnist").mkdir()
    download_data("digits", name=None, directory=tmp_path, base=None, progress=quiet)
    (tmp_path / "test_batch.bin").write_bytes(b"")
    download_data("cifar10", name="data_batch_1", directory=tmp_path, base=None, progress=quiet)
    mnist = ["train-images-idx3-ubyte.gz", "train-labels-idx1-ubyte.gz"]
    mnist += [name.replace("train", "t10k") for name in mnist]
    archive = ["cifar-10-binary.tar.gz"]
    assert calls == [
        (tmp_path, mnist, idx.BASE),
        (tmp_path, mnist, "http://here"),
        (tmp_path / "cifar-10-batches-bin", archive, cifar.BASE),
        (tmp_path / "mnist", mnist, idx.BASE),
        (tmp_path, archive, cifar.BASE),
    ]
    for data in ("line", lambda directory: None):
        with pytest.raises(ChoiceError, match="this model has its own data"):
            download_data(data, name=None, directory=tmp_path, base=None, progress=quiet)  # type: ignore[arg-type]


@pytest.mark.data
@pytest.mark.skipif("GRPC_PS_DATA" not in os.environ, reason="GRPC_PS_DATA names no folder with mnist/ in it")
def test_the_published_sizes_and_sums_are_those_of_the_real_files(tmp_path: Path) -> None:
    folder = Path(os.environ["GRPC_PS_DATA"]) / "mnist"
    with FileServer({path.name: path.read_bytes() for path in folder.iterdir()}) as server:
        download_data("digits", name=None, directory=tmp_path, base=server.address, progress=quiet)
    assert idx.load(tmp_path).train.examples == 60_000
