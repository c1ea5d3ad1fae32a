"""psctl export: a model's weights as one file, out of a checkpoint or of a running cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy.typing as npt

from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.commands.weights import SUFFIXES, write_weights
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.checkpoint import Checkpoint, read_manifest, verify
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_format import AVERAGE, MANIFEST, step_of
from grpc_ps.client.shared.checkpoint_rows import whole_table
from grpc_ps.client.shared.errors import CheckpointError, UsageError
from grpc_ps.client.shared.flags import Command, FilePath
from grpc_ps.client.shared.rows import Rows, tables_of


@dataclass(frozen=True)
class _Weights:
    values: Mapping[str, npt.NDArray[Any]]
    global_step: int
    model: str
    averages: bool


@click.command("export", cls=Command)
@click.argument("file", metavar="FILE", type=FilePath())
@click.option(
    "--checkpoint",
    metavar="DIR",
    type=FilePath(),
    help="Folder of checkpoints, of which the newest whole one is taken, or of one (step-...). Needs no cluster.",
)
@click.option("--raw", is_flag=True, help="The values of parameters, where the job keeps moving averages of them.")
@click.option("--force", is_flag=True, help="Replace a file that is there.")
@target_options
def export(file: Path, checkpoint: Path | None, raw: bool, force: bool, ps: str | None, log_dir: Path | None) -> None:
    """Writes a model's weights into FILE.safetensors or FILE.npz.

    They are a running cluster's, of one step, or a checkpoint's with --checkpoint. Every parameter is written in its
    name, shape and type, without the optimizer's slots; .npz has float32 for bfloat16, which NumPy does not know.
    A job with --moving-average has its averages written, unless --raw is given. Of a lazy table NAME there are the rows
    that were updated, as NAME.rows, with NAME.ids. `worker --init-from FILE` begins with what is in the file.
    """
    _check(file, force=force)
    if checkpoint is None:
        weights = _of_cluster(ps, log_dir, averages=not raw)
    elif ps is not None or log_dir is not None:
        raise UsageError("--checkpoint: is for weights without a cluster; not with --ps or --log-dir")
    else:
        weights = _of_checkpoint(checkpoint, averages=not raw)
    metadata = {"global_step": str(weights.global_step), "model": weights.model}
    size = write_weights(file, weights.values, {name: text for name, text in metadata.items() if text})
    what = "moving averages of " if weights.averages else ""
    click.echo(f"{file}: {what}{len(weights.values)} parameters of global step {weights.global_step}, {size:,} bytes")


def _check(file: Path, *, force: bool) -> None:
    """Refuses a file that cannot be written before anything is read."""
    if file.suffix not in SUFFIXES:
        raise UsageError(f"{file}: the name of a file of weights ends in {' or '.join(SUFFIXES)}")
    if not file.absolute().parent.is_dir():
        raise UsageError(f"{file}: there is no folder {file.absolute().parent}")
    if file.is_dir() or (file.exists() and not force):
        raise UsageError(f"{file}: {'is a folder' if file.is_dir() else 'is there already; --force replaces it'}")


def _of_cluster(ps: str | None, log_dir: Path | None, *, averages: bool) -> _Weights:
    with connect(ps, log_dir) as client:
        now = client.status()
        tables = tables_of(now.parameters)
        pulled = client.pull(averages=averages, tables=[spec.name for spec in tables])
        rows = {name: array for spec in tables for name, array in _rows(spec, pulled.tables[spec.name]).items()}
        return _Weights({**pulled.values, **rows}, pulled.global_step, now.model, pulled.averages)


def _rows(spec: ParameterSpec, rows: Rows) -> dict[str, npt.NDArray[Any]]:
    """What the file has of a table: [rows, dim], or of a lazy one the rows that were updated, and their ids."""
    if spec.table is not None and spec.table.lazy:
        return {f"{spec.name}.ids": rows.ids, f"{spec.name}.rows": rows.values}
    return {spec.name: rows.values}


def _of_checkpoint(directory: Path, *, averages: bool) -> _Weights:
    found = _found(directory)
    with found.open() as reader:
        names = [spec.name for spec in found.manifest.parameters if spec.table is None]
        kept = {name: AVERAGE for name in names if averages and (name, AVERAGE) in reader.dtypes}
        values = {name: reader.value(name, kept.get(name, "")) for name in names}
        for spec in tables_of(found.manifest.parameters):
            values |= _rows(spec, whole_table(reader, spec))
    return _Weights(values, found.step, found.manifest.model, bool(kept))


def _found(directory: Path) -> Checkpoint:
    """The checkpoint that is meant, verified.

    Raises:
        CheckpointError: there is none, or none that is whole.
    """
    if step_of(directory.resolve().name) is not None or (directory / MANIFEST).exists():
        if problems := verify(directory):
            raise CheckpointError(problems[0])
        return Checkpoint(directory, read_manifest(directory))
    newest = CheckpointFolder(directory).newest(lambda text: click.echo(f"psctl: warning: {text}", err=True))
    if newest is None:
        raise CheckpointError(f"{directory}: there is no checkpoint in it")
    return newest
