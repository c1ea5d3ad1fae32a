"""Small checkpoints for tests: parameters of every type, written by any number of shards."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from grpc_ps.client.shared.blocks import ParameterSpec, place
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_format import At, Piece, nowhere, part_name
from grpc_ps.client.shared.checkpoint_manifest import Manifest, Part
from grpc_ps.client.shared.checkpoint_part import write_part
from grpc_ps.client.shared.image import numpy_dtype, values_layout

Array = npt.NDArray[Any]

RUN = 0x1F2E3D4C5B6A7988
SPECS = (
    ParameterSpec(name="dense/kernel", shape=(40, 10), dtype="float32"),
    ParameterSpec(name="dense/bias", shape=(10,), dtype="bfloat16"),
    ParameterSpec(name="steps", shape=(), dtype="int64", trainable=False),
    ParameterSpec(name="mask", shape=(7,), dtype="bool", trainable=False),
    ParameterSpec(name="nothing", shape=(0, 3), dtype="float64"),
)
SLOTS = ("m", "v")


def saving_name(step: int, token: str) -> str:
    """Name of the folder that a checkpoint is written into; `token` is the writing lead's own, in hex."""
    return f".saving-{step:08d}-{token}"


def numbers(spec: ParameterSpec, slot: str, step: int) -> Array:
    """The elements of a value or slot at a step: any bits, another for each."""
    seed = [step, *f"{spec.name}/{slot}".encode()]
    data = np.random.default_rng(seed).integers(0, 2 if spec.dtype == "bool" else 256, spec.nbytes, np.uint8)
    return data.view(numpy_dtype(spec.dtype))


def state(specs: tuple[ParameterSpec, ...] = SPECS, step: int = 40) -> dict[tuple[str, str], Array]:
    """All values ("" for the slot) and slots at a step."""
    return {(spec.name, slot): numbers(spec, slot, step) for spec, slot in _held(specs)}


def _held(specs: tuple[ParameterSpec, ...]) -> Iterator[tuple[ParameterSpec, str]]:
    for spec in specs:
        yield spec, ""
        if spec.trainable:
            yield from ((spec, slot) for slot in SLOTS)


def pieces_of(
    specs: tuple[ParameterSpec, ...], arrays: dict[tuple[str, str], Array], shard: int, shards: int
) -> list[tuple[Piece, memoryview]]:
    """What one shard saves."""
    found = []
    for run in values_layout(place(specs, shards).shards[shard]).blocks:
        for name, slot in arrays:
            if name == run.parameter:
                part = arrays[name, slot][run.start : run.stop]
                found.append((Piece(name, slot, run.start, run.stop, run.dtype), part.view(np.uint8).data))
    return found


def manifest(step: int = 40, *, parts: tuple[Part, ...] = (), specs: tuple[ParameterSpec, ...] = SPECS) -> Manifest:
    """A manifest with something in every field."""
    return Manifest(
        run=RUN,
        global_step=step,
        opened=3,
        model="mnist",
        settings={"mode": "sync", "workers": 2, "learning_rate": 0.1, "nesterov": True},
        opened_settings={"mode": "async", "steps": 100},
        parameters=specs,
        shard_count=len(parts),
        plan_fingerprint=place(specs, max(1, len(parts))).fingerprint,
        cursor=17,
        returned=(3, 5),
        learning_rate_factor=0.5,
        paused=False,
        started=True,
        created="2026-01-02T03:04:05+00:00",
        parts=parts,
    )


def write(
    folder: CheckpointFolder,
    step: int = 40,
    *,
    shards: int = 2,
    token: str = "0a",
    at: At = nowhere,
    specs: tuple[ParameterSpec, ...] = SPECS,
    change: Callable[[Manifest], Manifest] = lambda it: it,
) -> Path:
    """Saves and commits the state of a step, one shard after the other."""
    name = saving_name(step, token)
    arrays = state(specs, step)
    parts = tuple(
        write_part(folder.path / name, part_name(shard, shards), pieces_of(specs, arrays, shard, shards), {}, at)
        for shard in range(shards)
    )
    return folder.commit(name, change(manifest(step, parts=parts, specs=specs)))


def without_parts(found: Manifest, count: int) -> Manifest:
    """The manifest with its first `count` parts only."""
    return replace(found, parts=found.parts[:count], shard_count=count)
