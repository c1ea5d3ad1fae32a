"""The lead's time: it does not run while the process stands still."""

from __future__ import annotations

import pytest

from grpc_ps.psserver import clock as module
from grpc_ps.psserver.clock import Clock


def test_a_standstill_takes_no_time(monkeypatch: pytest.MonkeyPatch) -> None:
    real = 100.0
    monkeypatch.setattr(module.time, "monotonic", lambda: real)
    clock = Clock()
    for _ in range(20):
        real += 0.1
        clock.tick()
    assert clock.now() == pytest.approx(102.0)
    real += 60.0
    clock.tick()
    assert clock.now() == pytest.approx(102.0)
    real += 0.5
    clock.tick()
    assert clock.now() == pytest.approx(102.5)
