"""psctl set: changes a job while it runs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from grpc_ps.client.client import Changed, ClusterStatus
from grpc_ps.client.commands.tables import bound
from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.shared.flag_forms import Bound
from grpc_ps.client.shared.flags import MAX_U32, Command, OneOf, Real, Whole
from grpc_ps.client.shared.job_flags import MODES, check_job_flags

_FLAGS = "--mode, --workers, --backup, --min-workers, --max-staleness, --learning-rate-factor, --pause or --resume"

_STALENESS_HELP = "Async: applied pushes that a worker may be ahead of the slowest one."


def _refuse_rate(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    """Refuses what belongs to the schedule. What comes closest is another kind of number."""
    if value is not None:
        raise click.UsageError(
            "unknown option --learning-rate (did you mean --learning-rate-factor? That is a factor:"
            f" {value} there is {value} times the schedule's rate)",
            ctx,
        )


@click.command("set", cls=Command)
@target_options
@click.option("--mode", type=OneOf(*MODES), help="Updates one by one, or in rounds.")
@click.option("--workers", type=Whole(1, MAX_U32), help="Sync: gradients that a round averages (N).")
@click.option("--backup", type=Whole(0, MAX_U32), help="Sync: workers beyond N that may be late (K).")
@click.option("--min-workers", type=Whole(1, MAX_U32), help="Sync: workers needed when others are lost.")
@click.option("--max-staleness", type=Bound(), help=_STALENESS_HELP)
@click.option(
    "--learning-rate-factor",
    type=Real(above=0),
    help="What the schedule's learning rate is multiplied with; 1 is the schedule's own, 0.1 a tenth of it.",
)
@click.option("--learning-rate", "--lr", hidden=True, expose_value=False, callback=_refuse_rate)
@click.option("--pause", is_flag=True, help="Workers finish what they compute, and get nothing new.")
@click.option("--resume", is_flag=True, help="Workers get work again.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def set_job(ps: str | None, log_dir: Path | None, as_json: bool, pause: bool, resume: bool, **changes: Any) -> None:
    """Changes a job while it runs.

    All that is given changes, or nothing, between two updates of the model; what has changed is shown. What workers
    compute at that moment counts by the new settings: in sync, gradients of older parameters are late. To raise N,
    raise K first and let the workers join.
    """
    if pause and resume:
        raise click.UsageError("--pause and --resume: give one of them, not both")
    if pause or resume:
        changes["paused"] = pause
    if all(value is None for value in changes.values()):
        raise click.UsageError(f"nothing to change: give {_FLAGS}")
    check_job_flags(changes)
    with connect(ps, log_dir) as client:
        before = client.status()
        after = client.set(**changes)
    differences = dict(_differences(before, after))
    if as_json:
        record = {"global_step": after.global_step, "position": after.position, "changed": differences}
        click.echo(json.dumps(record))
        return
    click.echo(f"at global step {after.global_step}, behind position {after.position} of the lead's log:")
    for name, values in differences.items():
        click.echo(f"  {name}: {_text(name, values['old'])} -> {_text(name, values['new'])}")
    for name, value in changes.items():
        if value is not None and name not in differences:
            click.echo(f"  {name}: is {_text(name, value)} already")


def _differences(before: ClusterStatus, after: Changed) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yields what differs, by name: the old value and the new one."""
    old = {**before.settings, "learning_rate_factor": before.learning_rate_factor, "paused": before.paused}
    new = {**after.settings, "learning_rate_factor": after.learning_rate_factor, "paused": after.paused}
    for name, value in new.items():
        if old.get(name) != value:
            yield name, {"old": old.get(name), "new": value}


def _text(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return bound(value) if name == "max_staleness" else str(value)
