"""psctl placement: which shard holds which part of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from grpc_ps.client.client import ClusterStatus
from grpc_ps.client.commands import tables
from grpc_ps.client.commands.idle import no_model
from grpc_ps.client.commands.programs import worker_record
from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.shared.blocks import ParameterSpec, Placement, place
from grpc_ps.client.shared.errors import JobFailed, Mismatch
from grpc_ps.client.shared.flags import Command, Real, Whole, typed
from grpc_ps.client.shared.rows import rows_on_shard
from grpc_ps.client.shared.tables import TableSpec

# Shards that have a column of their own in the table of parameters.
_COLUMNS = 8


@dataclass(frozen=True, kw_only=True)
class PlacementView:
    """A model's parameters and where they are placed."""

    parameters: Sequence[ParameterSpec]
    placement: Placement

    @property
    def shard_bytes(self) -> list[int]:
        """Bytes of values on each shard, with the rows of tables but lazy ones: of those there is what is touched."""
        blocks = [sum(block.nbytes for block in blocks) for blocks in self.placement.shards]
        return [size + self._table_bytes(shard) for shard, size in enumerate(blocks)]

    def _table_bytes(self, shard: int) -> int:
        count = len(self.placement.shards)
        whole = [spec for spec in self.parameters if spec.table is not None and not spec.table.lazy]
        return sum(rows_on_shard(spec.shape[0], shard, count) * spec.shape[1] * 4 for spec in whole)

    @property
    def largest_over_mean(self) -> float:
        """How many times the mean the largest shard has: 1 is perfect balance."""
        sizes = self.shard_bytes
        return max(sizes) * len(sizes) / sum(sizes) if sum(sizes) else 1.0

    def blocks_of(self, parameter: str) -> list[int]:
        """Number of a parameter's blocks on each shard."""
        return [sum(block.parameter == parameter for block in blocks) for blocks in self.placement.shards]

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain values for JSON."""
        total = sum(self.shard_bytes)
        return {
            "parameters": [
                {
                    "name": spec.name,
                    "shape": list(spec.shape),
                    "dtype": spec.dtype,
                    "trainable": spec.trainable,
                    "bytes": spec.nbytes,
                    "blocks": self.blocks_of(spec.name),
                }
                | ({"table": asdict(spec.table)} if spec.table is not None else {})
                for spec in self.parameters
            ],
            "shards": [
                {"shard": shard, "blocks": len(blocks), "bytes": size, "share": size / total if total else 0.0}
                for shard, (blocks, size) in enumerate(zip(self.placement.shards, self.shard_bytes, strict=True))
            ],
            "bytes": total,
            "largest_over_mean": self.largest_over_mean,
            "fingerprint": self.placement.fingerprint,
        }


@click.command("placement", cls=Command)
@target_options
@click.option(
    "--model", metavar="NAME", help="A model that does not run: a name, file.py:attribute or module:attribute."
)
@click.option("--model-arg", multiple=True, metavar="KEY=VALUE", help="With --model: its argument. Repeatable.")
@click.option("--shards", type=Whole(1, 10000), help="With --model: shards to place it on.")
@click.option(
    "--timeout", type=Real(above=0), default=120.0, show_default=True, help="With --model: seconds to make the model."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def placement(
    ps: str | None,
    log_dir: Path | None,
    model: str | None,
    model_arg: tuple[str, ...],
    shards: int | None,
    timeout: float,
    as_json: bool,
) -> None:
    """Shows which shard holds what of a model.

    The model is a running cluster's, or --model on so many --shards without a cluster.
    Parameters are cut into blocks by their shapes alone, and blocks placed by size, the same way in every process.
    """
    _check(model, shards, model_arg, running=ps or log_dir)
    if model is None:
        with connect(ps, log_dir) as client:
            view = _running(client.status())
    else:
        view = _planned({"model": model, "model_arg": model_arg}, shards or 1, timeout)
    if as_json:
        click.echo(json.dumps(view.to_dict()))
    else:
        _show(view)


def _check(model: str | None, shards: int | None, model_arg: tuple[str, ...], *, running: object) -> None:
    if model is None:
        for flag, given in (("--shards", shards), ("--model-arg", model_arg)):
            if given:
                raise click.UsageError(f"{flag}: only with --model; a running cluster has its own")
    elif running:
        raise click.UsageError("--model: is for a model that does not run; not with --ps or --log-dir")
    elif shards is None:
        raise click.UsageError("--shards: must be given with --model")


def _running(now: ClusterStatus) -> PlacementView:
    """Returns the placement of the job that runs.

    Raises:
        NotOpen: none has been opened.
        Mismatch: the shards place by another rule.
    """
    if not now.parameters:
        raise no_model(now)
    view = PlacementView(parameters=now.parameters, placement=place(now.parameters, len(now.shards)))
    if view.placement.fingerprint != now.plan_fingerprint:
        raise Mismatch("the cluster places its blocks differently: is psctl of the same version as the shards?")
    return view


def _planned(flags: Mapping[str, Any], shards: int, timeout: float) -> PlacementView:
    """Returns the placement of a model that a worker describes.

    Raises:
        JobFailed: the worker cannot make it, or describes what is no model.
    """
    record = worker_record(["placement", *typed(flags)], seconds=timeout, what="worker placement")
    try:
        parameters = [
            ParameterSpec(
                name=it["name"],
                shape=tuple(it["shape"]),
                dtype=it["dtype"],
                trainable=it["trainable"],
                table=TableSpec(**it["table"]) if "table" in it else None,
            )
            for it in record["parameters"]
        ]
        return PlacementView(parameters=parameters, placement=place(parameters, shards))
    except (KeyError, TypeError, ValueError) as error:
        raise JobFailed(f"worker placement described no model: {error!r}") from None


def _show(view: PlacementView) -> None:
    names = [f"shard {shard}" for shard in range(len(view.placement.shards))]
    # A table has room for some shards only; more of them are listed by number.
    many = len(names) > _COLUMNS
    columns = ["blocks: shard x number"] if many else [f"blocks: {names[0]}", *names[1:]]
    parameters = tables.make_table("parameters", "parameter", "shape", "type", "bytes", *columns)
    for spec in view.parameters:
        counts = view.blocks_of(spec.name)
        kind = spec.dtype if spec.trainable else f"{spec.dtype}, not trainable"
        if spec.table is not None:
            kind = f"{spec.dtype}, {'lazy ' if spec.table.lazy else ''}table"
            counts = [rows_on_shard(spec.shape[0], shard, len(names)) for shard in range(len(names))]
        unit = "" if spec.table is None else " rows"
        listed = " ".join(f"{shard}x{count}{unit}" for shard, count in enumerate(counts) if count)
        cells = [listed] if many else [f"{count:,}{unit}" if count else "" for count in counts]
        parameters.add_row(spec.name, str(list(spec.shape)), kind, f"{spec.nbytes:,}", *cells)
    record = view.to_dict()
    shards = tables.make_table("shards", "shard", "blocks", "bytes", "share")
    for shard in record["shards"]:
        shards.add_row(str(shard["shard"]), str(shard["blocks"]), f"{shard['bytes']:,}", f"{shard['share']:.1%}")
    console = tables.console()
    console.print(parameters, shards)
    total = f"{len(view.parameters)} parameters, {record['bytes']:,} bytes"
    console.print(f"{total}; largest shard {view.largest_over_mean:.3f} times the mean", highlight=False)
