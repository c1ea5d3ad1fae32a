"""What the integration tests share."""

from __future__ import annotations

import pytest

from grpc_ps.psserver.updates import load_store


@pytest.fixture(scope="session", autouse=True)
def _tensorflow() -> None:
    """Imports TensorFlow before any cluster starts: that takes seconds, in which short leases would end."""
    load_store(1)
