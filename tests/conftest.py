"""What tests share."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from grpc_ps.client.shared.logs import ROOT
from grpc_ps.client.shared.process import prepare_process

if TYPE_CHECKING:
    from shard_log import ShardLog

prepare_process()


@pytest.fixture
def log() -> Iterator[ShardLog]:
    """What is logged in this process, whatever other tests of it have set up."""
    from shard_log import ShardLog  # which imports gRPC: most tests need neither

    log = ShardLog()
    log.begin()
    yield log
    log.end()


@pytest.fixture(autouse=True)
def _logging() -> Iterator[None]:
    """Lets no test that sets up a command's logging take the log from those behind it."""
    logger = logging.getLogger(ROOT)
    before = logger.handlers[:], logger.level, logger.propagate
    yield
    logger.handlers[:], level, logger.propagate = before
    logger.setLevel(level)


@pytest.fixture(scope="session")
def mnist_folder() -> str:
    """The folder with the real MNIST files; tests that need it skip where `GRPC_PS_DATA` does not name one."""
    folder = Path(os.environ.get("GRPC_PS_DATA", "")) / "mnist"
    if "GRPC_PS_DATA" not in os.environ or not folder.is_dir():
        pytest.skip("GRPC_PS_DATA names no folder with the real MNIST files in mnist/")
    return str(folder)
