"""A launch that fetches the real MNIST from a server on loopback first, and what a user sees of that."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from commands import run
from file_server import FileServer

pytestmark = [
    pytest.mark.e2e,
    pytest.mark.data,
    pytest.mark.skipif("GRPC_PS_DATA" not in os.environ, reason="GRPC_PS_DATA names no folder with mnist/ in it"),
]


def test_a_launch_downloads_trains_and_needs_nothing_the_second_time(tmp_path: Path) -> None:
    folder = Path(os.environ["GRPC_PS_DATA"]) / "mnist"
    flags = ["--model", "mnist", "--steps", 20, "--data-dir", tmp_path / "data", "--download"]
    flags += ["--log-dir", tmp_path / "logs"]
    with FileServer({path.name: path.read_bytes() for path in folder.iterdir()}) as server:
        asked = [*flags, "--download-url", server.address]
        server.cut = 1000
        refused = run("psctl", "launch", *asked)
        assert refused.returncode == 3
        path = tmp_path / "data" / "train-images-idx3-ubyte.gz"
        says = f"{server.address}/{path.name} gave 1000 bytes; expected 9912422: try again"
        assert refused.stderr == f"psctl: error: {path}: {says}\n"
        server.cut = None
        done = run("psctl", "launch", *asked)
    assert done.returncode == 0, done.stderr
    assert re.search(r"^\[data\] .* download file=train-images-idx3-ubyte\.gz bytes=\d+ of=9912422$", done.stdout, re.M)
    assert "60000 images to train on and 10000 to test with" in done.stdout
    assert sorted(path.name for path in (tmp_path / "data").glob("[!.]*")) == sorted(p.name for p in folder.iterdir())
