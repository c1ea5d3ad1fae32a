"""psctl stop: ends a job."""

from __future__ import annotations

import json
from pathlib import Path

import click

from grpc_ps.client.client import ClusterStatus
from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.shared.flags import Command


@click.command("stop", cls=Command)
@target_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def stop(ps: str | None, log_dir: Path | None, as_json: bool) -> None:
    """Ends a job now.

    Its workers leave, and every process exits with 0. A cluster that stands ends with it, its standing workers too. Of
    a job that was over before, it is said how it ended; the exit code here is 0 then too.
    """
    with connect(ps, log_dir) as client:
        before = client.status()
        global_step = client.stop()
    if as_json:
        over = before.phase == "stopped"
        click.echo(json.dumps({"global_step": global_step, "over": over, "exit_code": before.exit_code if over else 0}))
    else:
        click.echo(_said(before, global_step))


def _said(before: ClusterStatus, global_step: int) -> str:
    name = f"job {before.job_number}" if before.job_number else "the job"
    if before.phase == "stopped":
        how = f"exit code {before.exit_code}" + (f" ({' '.join(before.reason.split())})" if before.reason else "")
        return f"{name} was over already, at global step {before.global_step} with {how}; the cluster ends"
    if before.phase == "empty" and not before.job_number:
        return "no job was running; the cluster ends"
    return f"stopped {name} at global step {global_step}; the cluster ends"
