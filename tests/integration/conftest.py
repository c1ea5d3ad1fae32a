"""What the integration tests share."""

from __future__ import annotations

import pytest

from grpc_ps.client import client
from grpc_ps.psserver.updates import load_store


@pytest.fixture(scope="session", autouse=True)
def _tensorflow() -> None:
    """Imports TensorFlow before any cluster starts: that takes seconds, in which short leases would end."""
    load_store(1)


@pytest.fixture
def leaving_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Lets a worker wait until its word that it leaves is heard: behind a slow lead its lease would have to end."""
    monkeypatch.setattr(client, "_LEAVE_SECONDS", 20.0)
