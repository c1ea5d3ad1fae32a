"""psctl cancel: takes a job out of the queue, or ends the one that runs."""

from __future__ import annotations

import json
from pathlib import Path

import click

from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.shared.flags import MAX_U32, Command, Whole


@click.command("cancel", cls=Command)
@click.argument("number", type=Whole(1, MAX_U32))
@target_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def cancel(number: int, ps: str | None, log_dir: Path | None, as_json: bool) -> None:
    """Cancels job NUMBER, whether it waits or runs.

    The workers of a job that runs leave it, and the cluster goes on with the next one. Whoever follows the job is told,
    and ends with exit code 7.
    """
    with connect(ps, log_dir) as client:
        job = client.jobs.cancel(number)
    waited = job.started_ms is None
    said = f"job {number} is cancelled" + ("" if waited else f" at global step {job.global_step}: its workers leave")
    click.echo(json.dumps(job.to_dict()) if as_json else said)
