"""What psctl launch shows on a terminal."""

from __future__ import annotations

import io
import threading
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fake_control import status

from grpc_ps.client.client import ClusterStatus, PSClient
from grpc_ps.client.commands.view import make_view
from grpc_ps.client.launch import Restart
from grpc_ps.client.processes import TAIL_LINES, Line
from grpc_ps.client.status import cluster_status
from grpc_ps.protos import control_pb2 as wire


def test_bars_show_global_and_local_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    saved = wire.CheckpointStatus(directory="d", global_step=20, restored_step=10)
    again = threading.Event()

    def watch(self: PSClient, interval: float, **_: object) -> Iterator[ClusterStatus]:
        yield cluster_status(status(checkpoint=saved))
        if again.is_set():
            both.set()
        again.set()

    both = threading.Event()
    monkeypatch.setattr(PSClient, "watch", watch)
    output = io.StringIO()
    with make_view(output, bars=True) as view:
        view.started(("127.0.0.1:1",))
        # A lead that was gone is looked for again.
        assert both.wait(30)
        view.observe(Restart("worker 1", 137, 2, 5, 0.5))
        assert "local step" not in output.getvalue(), "nothing is shown before the end where there is no terminal"
        worker: Any = SimpleNamespace(name="worker 1")
        for text in ('{"worker": 1, "local_steps": 17, "global_step": 33}', '{"worker": 1}', "{ no summary"):
            view.observe(Line(worker, text, stdout=True))
    shown = output.getvalue()
    assert shown.count("resumed from step 10") == 1
    assert "restart worker 1 (signal 9), 2 of 5, in 0.5 s" in shown
    assert "global step" in shown
    assert "33/3000 running" in shown, "what a worker said last was not known to the lead before"
    assert "worker 1 local step" in shown
    assert "17/?      loss 0.25 late 2" in shown, "nobody knows how many of an async job are this worker's"


def test_lines_are_known_as_long_as_they_are_among_the_newest() -> None:
    child: Any = SimpleNamespace(name="ps 0")
    with make_view(io.StringIO(), bars=False) as view:
        view.observe(Line(child, "error: locked", stdout=False))
        assert view.shows(["[ps 0] before", "[ps 0] error: locked"])
        assert not view.shows(["[ps 1] error: locked"])
        assert not view.shows([])
        for number in range(TAIL_LINES):
            view.observe(Line(child, str(number), stdout=False))
        assert not view.shows(["[ps 0] error: locked"])
