"""Jobs whose values tell which batches they are made of, light workers that train them, and what is saved of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
from light_worker import Gradient, Outcome, gathered, run_worker, run_workers
from recovery_bed import RecoveryBed

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.checkpoint import Checkpoint, read_manifest, verify
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_manifest import Manifest

SPECS = [ParameterSpec(name=name, shape=(40,), dtype="float32") for name in ("a", "b", "c")]
LR = 2.0**-10


def by_number(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
    """A gradient whose every element is the batch's number: sums of them are exact, and tell which were applied."""
    return {name: np.full_like(value, batch) for name, value in parameters.items()}, 1


def summed(batches: Iterable[float]) -> np.ndarray:
    """What SGD with LR makes of zeros by those batches."""
    return np.full(SPECS[0].shape, -LR * sum(batches), np.float32)


@contextmanager
def training(
    bed: RecoveryBed, count: int = 2, gradient: Gradient = by_number, *, together: bool = True, **options: Any
) -> Iterator[Future[list[Outcome]]]:
    """Light workers that come again; at the end of the `with` they have ended well.

    With `together` nobody computes while one is missing: else the rest may be done before it has come again.
    """
    options = {"rejoin": True, **options}
    compute = gathered(bed, count, gradient) if together else gradient
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(
            run_workers, count, lambda number: run_worker(bed.addresses, SPECS, compute, index=number, **options)
        )
        yield done
        done.result(60)


def whole_steps(directory: Path) -> list[int]:
    """Steps of the checkpoints that are whole, read back and summed."""
    folder = CheckpointFolder(directory)
    return [step for step in folder.steps() if not verify(folder.step_path(step))]


def manifest_of(directory: Path, step: int) -> Manifest:
    """The manifest of a step's checkpoint."""
    return read_manifest(CheckpointFolder(directory).step_path(step))


def state_of(directory: Path, step: int) -> dict[tuple[str, str], np.ndarray]:
    """All values (slot "") and slots of a checkpoint that is whole, flat."""
    path = CheckpointFolder(directory).step_path(step)
    assert verify(path) == []
    manifest = read_manifest(path)
    specs = {spec.name: spec for spec in manifest.parameters}
    state = {}
    with Checkpoint(path, manifest).open() as reader:
        for parameter, slot in sorted(reader.dtypes):
            array = np.empty(int(np.prod(specs[parameter].shape)), reader.dtypes[parameter, slot])
            reader.read(parameter, slot, 0, array.size, array)
            state[parameter, slot] = array
    return state
