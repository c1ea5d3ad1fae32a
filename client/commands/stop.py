"""psctl stop: ends a job."""

from __future__ import annotations

import json
from pathlib import Path

import click

from grpc_ps.client.client import ClusterStatus
from grpc_ps.client.commands.tables import counted
from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.shared.flags import Command


@click.command("stop", cls=Command)
@target_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def stop(ps: str | None, log_dir: Path | None, as_json: bool) -> None:
    """Ends a job now.

    Its workers leave, and every process exits with 0. A cluster that stands ends with it, its standing workers too. Of
    a job that was over before, it is said how it ended; the exit code here is 0 then too. It is said how many jobs
    waited in the queue: they are dropped, unless shards with --checkpoint-dir have saved it.
    """
    with connect(ps, log_dir) as client:
        before = client.status()
        queued = sum(job.state == "queued" for job in client.jobs.list())
        global_step = client.stop()
    # The queue is saved where the jobs are.
    kept = queued if before.checkpoint is not None else 0
    if as_json:
        over = before.phase == "stopped"
        how = {"over": over, "exit_code": before.exit_code if over else 0}
        click.echo(json.dumps({"global_step": global_step, **how, "dropped": queued - kept, "kept": kept}))
        return
    said = [_said(before, global_step)]
    if kept:
        verb = "goes" if kept == 1 else "go"
        said.append(f"{counted(kept, 'queued job')} {verb} on where shards are started with the same --checkpoint-dir")
    elif queued:
        said.append(f"{counted(queued, 'queued job')} {'is' if queued == 1 else 'are'} dropped")
    click.echo("; ".join(said))


def _said(before: ClusterStatus, global_step: int) -> str:
    name = f"job {before.job_number}" if before.job_number else "the job"
    if before.phase == "stopped":
        how = f"exit code {before.exit_code}" + (f" ({' '.join(before.reason.split())})" if before.reason else "")
        return f"{name} was over already, at global step {before.global_step} with {how}; the cluster ends"
    if before.phase == "empty" and not before.job_number:
        return "no job was running; the cluster ends"
    return f"stopped {name} at global step {global_step}; the cluster ends"
