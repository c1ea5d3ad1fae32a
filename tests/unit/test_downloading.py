"""--download of a worker: which flags go together, and what is shown."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pytest
from file_server import FileServer

from grpc_ps.client.shared.errors import DataError, UsageError
from grpc_ps.worker import downloading
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.downloading import fetch_data, shown


def config(**more: Any) -> WorkerConfig:
    return WorkerConfig(addresses=("a:1",), model="mnist", arguments={}, stated={}, **more)


def test_nothing_is_fetched_unasked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(downloading, "download_data", lambda *_, **more: pytest.fail("fetched"))
    fetch_data("digits", config(data_dir=tmp_path))


def test_what_fails_is_an_error_of_the_data_or_of_usage(tmp_path: Path) -> None:
    with FileServer({}) as server:
        asked = config(data_dir=tmp_path, download=True, download_url=server.address)
        with pytest.raises(DataError, match=r"train-images-idx3-ubyte\.gz: http.* answered 404") as caught:
            fetch_data("digits", asked)
    assert caught.value.exit_code == 3
    with pytest.raises(UsageError, match="this model has its own data"):
        fetch_data(lambda directory: None, asked)  # type: ignore[arg-type, return-value]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def told(out: io.StringIO) -> None:
    with shown(out) as progress:
        for name, total in (("one", 1000), ("two", 5)):
            for done in range(total + 1):
                progress(name, done, total)


def test_a_terminal_gets_bars_and_keeps_its_cursor(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TERM", "xterm")
    out = Terminal()
    told(out)
    text = out.getvalue()
    assert "one" in text
    assert "two" in text
    assert "1.0/1.0 kB" in text
    assert "\x1b[?25l" not in text, "a hidden cursor"


def test_elsewhere_there_is_a_line_at_each_tenth(monkeypatch: pytest.MonkeyPatch) -> None:
    lines: list[tuple[str, int, int]] = []
    monkeypatch.setattr(downloading, "event", lambda logger, name, **told: lines.append(tuple(told.values())))
    told(io.StringIO())
    assert [line for line in lines if line[0] == "one"] == [("one", done, 1000) for done in range(0, 1001, 100)]
    assert [line for line in lines if line[0] == "two"] == [("two", done, 5) for done in range(6)]
