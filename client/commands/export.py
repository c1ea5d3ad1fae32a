"""psctl export: a model's weights as one file, or the whole model, out of a checkpoint or of a running cluster."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
import numpy.typing as npt

from grpc_ps.client.commands.inspect import why_none
from grpc_ps.client.commands.programs import OUR_MODELS, worker_record
from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.commands.weights import write_weights
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.checkpoint import Checkpoint, read_manifest, verify
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_format import AVERAGE, MANIFEST, step_of
from grpc_ps.client.shared.checkpoint_rows import whole_table
from grpc_ps.client.shared.errors import CheckpointError, UsageError
from grpc_ps.client.shared.export_target import MODELS, WEIGHTS, check_target, form_of
from grpc_ps.client.shared.flags import Command, FilePath, OneOf, Real, flag_of, typed
from grpc_ps.client.shared.rows import Rows, tables_of


@dataclass(frozen=True)
class _Weights:
    values: Mapping[str, npt.NDArray[Any]]
    global_step: int
    model: str
    averages: bool


def _named(ctx: click.Context, param: click.Parameter, value: str) -> str:
    """As typed: a slash at the end means a folder."""
    FilePath().convert(value, param, ctx)
    return value


@click.command("export", cls=Command)
@click.argument("name", metavar="FILE|DIR/", callback=_named)
@click.option(
    "--checkpoint",
    metavar="DIR",
    type=FilePath(),
    help="Folder of checkpoints, of which the newest whole one is taken, or of one (step-...). Needs no cluster.",
)
@click.option("--raw", is_flag=True, help="The values of parameters, where the job keeps moving averages of them.")
@click.option("--force", is_flag=True, help="Replace a file, or a SavedModel's folder, that is there.")
@click.option("--format", "form", type=OneOf(*WEIGHTS, *MODELS), help="What is written. Default: by the name.")
@click.option("--model", metavar="NAME", help="Model: the job's. May be left out where that is one of ours.")
@click.option("--model-arg", multiple=True, metavar="KEY=VALUE", help="Model: an argument of it. Repeatable.")
@click.option("--data-dir", metavar="DIR", help="Model: folder with its data files, if its data builds it.")
@click.option("--data", metavar="NAME", help="Model: data that needs no files, if its data builds it.")
@click.option("--timeout", type=Real(above=0), default=600.0, show_default=True, help="Seconds a model may take.")
@target_options
def export(
    name: str,
    checkpoint: Path | None,
    raw: bool,
    force: bool,
    form: str | None,
    timeout: float,
    ps: str | None,
    log_dir: Path | None,
    **model: Any,
) -> None:
    """Writes a model's weights into FILE.safetensors or FILE.npz, or the model into FILE.keras or DIR/.

    They are a running cluster's, of one step, or a checkpoint's with --checkpoint. Every parameter is written in its
    name, shape and type, without the optimizer's slots; .npz has float32 for bfloat16, which NumPy does not know.
    A job with --moving-average has its averages written, unless --raw is given. Of a lazy table NAME there are the rows
    that were updated, as NAME.rows, with NAME.ids. `worker --init-from FILE` begins with what is in the file.

    FILE.keras is for Keras models, and is read by keras.models.load_model. A folder, named with a slash at its end or
    with --format saved-model, becomes a TensorFlow SavedModel with a serving signature. A worker command writes both.
    """
    path, form = Path(name), form or form_of(name)
    check_target(path, form, force=force)
    if form in WEIGHTS and (given := next((flag for flag, value in model.items() if value), None)):
        raise UsageError(f"{flag_of(given)}: is for models (.keras, DIR/), and {path} has weights alone")
    if checkpoint is None:
        weights = _of_cluster(ps, log_dir, averages=not raw)
    elif ps is not None or log_dir is not None:
        raise UsageError("--checkpoint: is for weights without a cluster; not with --ps or --log-dir")
    else:
        weights = _of_checkpoint(checkpoint, averages=not raw)
    if form in MODELS:
        size = _write_model(path, form, weights, timeout, {**model, "force": force or None})
    else:
        size = _write_weights(path, weights)
    what = "moving averages of " if weights.averages else ""
    click.echo(f"{path}: {what}{len(weights.values)} parameters of global step {weights.global_step}, {size:,} bytes")


def _write_weights(path: Path, weights: _Weights) -> int:
    metadata = {"global_step": str(weights.global_step), "model": weights.model}
    return write_weights(path, weights.values, {name: text for name, text in metadata.items() if text})


def _write_model(path: Path, form: str, weights: _Weights, timeout: float, flags: Mapping[str, Any]) -> int:
    """Has a worker command write the model, which gets the weights as a file.

    Raises:
        click.UsageError: the model is none of ours, and not named.
        JobFailed: the command failed.
    """
    model = flags["model"] or (weights.model if weights.model in OUR_MODELS else None)
    if model is None:
        job = f"the job's model {weights.model!r} is none of {', '.join(OUR_MODELS)}"
        raise click.UsageError(f"--model: must be given, {job}")
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "weights.safetensors"
        _write_weights(file, weights)
        typed_flags = typed({**flags, "model": model, "format": form, "weights": file})
        record = worker_record(["export", str(path), *typed_flags], seconds=timeout, what="worker export")
    return int(record.get("bytes", 0))


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
    if not directory.is_dir():
        raise CheckpointError(f"--checkpoint {directory}: {why_none(directory)}")
    if step_of(directory.resolve().name) is not None or (directory / MANIFEST).exists():
        if problems := verify(directory):
            raise CheckpointError(problems[0])
        return Checkpoint(directory, read_manifest(directory))
    newest = CheckpointFolder(directory).newest(lambda text: click.echo(f"psctl: warning: {text}", err=True))
    if newest is None:
        raise CheckpointError(f"--checkpoint {directory}: {why_none(directory)}")
    return newest
