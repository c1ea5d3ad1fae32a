"""CIFAR-10's files in small: a few records each, whose labels and pixels tell where they are from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from grpc_ps.models.datasets import cifar

RECORDS = 20
NAMES = (*cifar.TRAIN, cifar.TEST)


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    """Makes `RECORDS` the number of records in each file."""
    monkeypatch.setattr(cifar, "RECORDS", RECORDS)


def records(number: int) -> np.ndarray:
    """The records of a file, in the order of `NAMES`: label i mod 10, and any pixels."""
    found = np.random.default_rng(number).integers(0, 256, (RECORDS, cifar.RECORD), np.uint8)
    found[:, 0] = np.arange(RECORDS) % 10
    return found


def write_files(folder: Path) -> None:
    """Writes all six."""
    for number, name in enumerate(NAMES):
        (folder / f"{name}.bin").write_bytes(records(number).tobytes())
