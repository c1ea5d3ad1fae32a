"""psctl inspect: what is in a folder of checkpoints, and whether it is whole."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import click

from grpc_ps.client.commands import tables
from grpc_ps.client.shared.checkpoint import Checkpoint, read_manifest, verify
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder, read_evaluation
from grpc_ps.client.shared.checkpoint_format import MANIFEST, step_of
from grpc_ps.client.shared.checkpoint_manifest import Manifest
from grpc_ps.client.shared.checkpoint_rows import stored_rows
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.flags import Command, FilePath


@dataclass(frozen=True, kw_only=True)
class Inspected:
    """One checkpoint: what its manifest says, if it can be read, and what is wrong with it, if anything is."""

    path: Path
    manifest: Manifest | None
    problems: Sequence[str]

    @property
    def whole(self) -> bool:
        """Whether training can go on from it."""
        return not self.problems

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain values for JSON."""
        record: dict[str, Any] = {"path": str(self.path), "whole": self.whole, "problems": list(self.problems)}
        record["global_step"] = step_of(self.path.name)
        if (known := self.manifest) is not None:
            record |= {
                "global_step": known.global_step,
                "bytes": known.nbytes,
                "shards": known.shard_count,
                "model": known.model,
                "run": f"{known.run:016x}",
                "created": known.created,
                "settings": dict(known.settings),
                "learning_rate_factor": known.learning_rate_factor,
                "cursor": known.cursor,
                "returned": list(known.returned),
                "evaluation": read_evaluation(self.path),
            }
        return record


@click.command("inspect", cls=Command)
@click.argument("directory", metavar="DIR", type=FilePath())
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def inspect(directory: Path, as_json: bool) -> None:
    """Shows what is in a folder of checkpoints, and whether it is whole.

    Every file is read and compared with its sum, so this takes as long as reading all of them. DIR may be the folder
    of one checkpoint (step-...): then its parameters are shown too. Nothing is changed, and a job may be at work.
    The exit code is 6 if there is no checkpoint, or the newest is not whole.
    """
    single = step_of(directory.resolve().name) is not None or (directory / MANIFEST).exists()
    found = [inspected(path) for path in ([directory] if single else _checkpoints(directory))]
    # A job that is at work removes old ones.
    found = [it for it in found if it.whole or it.path.exists()]
    if not found:
        raise CheckpointError(f"{directory}: {why_none(directory)}")
    parameters = _parameters(found[0]) if single and found[0].whole else []
    if as_json:
        record: dict[str, Any] = {"directory": str(directory), "checkpoints": [it.to_dict() for it in found]}
        click.echo(json.dumps(record | ({"parameters": parameters} if single else {})))
    else:
        _show(found, parameters)
    if not found[0].whole:
        raise CheckpointError(found[0].problems[0])


def _checkpoints(directory: Path) -> list[Path]:
    """The checkpoints' folders, newest first."""
    if not directory.is_dir():
        return []
    folder = CheckpointFolder(directory)
    return [folder.step_path(step) for step in reversed(folder.steps())]


def why_none(directory: Path) -> str:
    """Says of a folder that has no checkpoint what it is, and what belongs there."""
    expected = "expected the --checkpoint-dir of a job's shards, or a step-... in it"
    if not directory.exists():
        return f"there is no such folder; {expected}"
    if not directory.is_dir():
        return f"is a file; {expected}"
    jobs = sorted(path.name for path in directory.glob("job-*") if path.is_dir())
    if jobs:
        return f"has a folder for each job of a queue: name one of {', '.join(jobs[-3:])}"
    return f"there is no checkpoint in it; {expected}"


def inspected(path: Path) -> Inspected:
    """Reads one checkpoint whole."""
    problems = verify(path)
    try:
        return Inspected(path=path, manifest=read_manifest(path), problems=problems)
    except CheckpointError as error:
        return Inspected(path=path, manifest=None, problems=problems or [str(error)])


def _parameters(found: Inspected) -> list[dict[str, Any]]:
    if found.manifest is None:
        return []
    with Checkpoint(found.path, found.manifest).open() as reader:
        slots = reader.slots()
        held = {
            spec.name: sum(part.count for part in stored_rows(reader, spec))
            for spec in found.manifest.parameters
            if spec.table is not None
        }
    return [
        {
            "name": spec.name,
            "shape": list(spec.shape),
            "dtype": spec.dtype,
            "trainable": spec.trainable,
            "bytes": spec.nbytes,
            "slots": list(slots.get(spec.name, ())),
        }
        | ({"table": asdict(spec.table), "rows": held[spec.name]} if spec.table is not None else {})
        for spec in found.manifest.parameters
    ]


def _show(found: Sequence[Inspected], parameters: Sequence[Mapping[str, Any]]) -> None:
    table = tables.make_table(
        "checkpoints", "global step", "state", "bytes", "shards", "model", "mode", "optimizer", "created (UTC)"
    )
    for it in found:
        known = it.manifest
        state = "whole" if it.whole else "damaged"
        cells = ["", "", "", "", "", ""]
        if known is not None:
            words = [str(known.settings.get(name, "")) for name in ("mode", "optimizer")]
            created = known.created.replace("T", " ")[:19]
            cells = [f"{known.nbytes:,}", str(known.shard_count), known.model, *words, created]
        table.add_row(str(it.to_dict()["global_step"]), state, *cells)
    console = tables.console()
    console.print(table)
    for problem in (text for it in found for text in it.problems):
        console.print(problem, highlight=False, markup=False, soft_wrap=True)
    if parameters:
        console.print(_parameters_table(parameters))
        settings = found[0].manifest.settings if found[0].manifest else {}
        listed = " ".join(f"{name}={value}" for name, value in sorted(settings.items()))
        console.print(f"settings: {listed}", highlight=False, markup=False, soft_wrap=True)


def _parameters_table(parameters: Sequence[Mapping[str, Any]]) -> Any:
    table = tables.make_table("parameters", "parameter", "shape", "type", "bytes", "slots")
    for it in parameters:
        kind = it["dtype"] if it["trainable"] else f"{it['dtype']}, not trainable"
        if "table" in it:
            kind = f"{it['dtype']}, table of which {it['rows']:,} rows are held"
        table.add_row(it["name"], str(it["shape"]), kind, f"{it['bytes']:,}", ", ".join(it["slots"]))
    return table
