"""What workers kept back, read out of a checkpoint: whose it is, and what nobody can have kept back is refused."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from checkpoints import manifest, saving_name

from grpc_ps.client.shared.blocks import Block, ParameterSpec
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_format import Piece, part_name, residual_slot, worker_of_slot
from grpc_ps.client.shared.checkpoint_part import write_part
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.image import Bytes, values_layout
from grpc_ps.psserver.checkpoint import CheckpointFiles

SPEC = ParameterSpec(name="w", shape=(8,), dtype="float32")
LAYOUT = values_layout([Block("w", 0, 8, "float32", True)])


@pytest.mark.parametrize("worker", [0, 1, 10, 4294967295])
def test_a_slot_names_its_worker(worker: int) -> None:
    assert worker_of_slot(residual_slot(worker)) == worker


@pytest.mark.parametrize("name", ["01", "00", "", "-1", "1 ", "1.0", "٣", "²", "9" * 11, "9" * 5000])
def test_another_spelling_names_nobody(name: str) -> None:
    assert worker_of_slot(f"residual.{name}") is None
    assert worker_of_slot("m") is None


def restored(directory: Path, kept: np.ndarray) -> dict[int, Bytes]:
    """Saves zeros of which worker 2 has kept back this, and reads that."""
    folder = CheckpointFolder(directory)
    name = saving_name(40, "0a")
    pieces = [
        (Piece("w", "", 0, 8, "float32"), np.zeros(8, np.float32).view(np.uint8).data),
        (Piece("w", residual_slot(2), 0, 8, kept.dtype.name), kept.view(np.uint8).data),
    ]
    part = write_part(folder.path / name, part_name(0, 1), pieces, {})
    path = folder.commit(name, manifest(parts=(part,), specs=(SPEC,)))
    return CheckpointFiles(directory, 0, 1).read_residuals(path.name, LAYOUT)


def test_what_a_worker_kept_back_is_read(tmp_path: Path) -> None:
    kept = np.arange(8, dtype=np.float32)
    found = restored(tmp_path, kept)
    assert list(found) == [2]
    assert np.array_equal(found[2][:32].view(np.float32), kept)


@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite_are_refused(tmp_path: Path, value: float) -> None:
    kept = np.zeros(8, np.float32)
    kept[5] = value
    with pytest.raises(CheckpointError, match=r"residual\.2 of w has infinite numbers or NaN"):
        restored(tmp_path, kept)


@pytest.mark.parametrize("dtype", ["float64", "int32"])
def test_numbers_of_another_type_are_refused(tmp_path: Path, dtype: str) -> None:
    with pytest.raises(CheckpointError, match=rf"has residual\.2 of w as {dtype}, not float32"):
        restored(tmp_path, np.zeros(8, dtype))
