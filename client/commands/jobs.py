"""psctl jobs: the queue of a cluster that stands."""

from __future__ import annotations

import json
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

import click
from rich.console import Group
from rich.text import Text

from grpc_ps.client.commands import tables
from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.jobs import JobStatus, StandingWorker
from grpc_ps.client.shared.flags import Command


@click.command("jobs", cls=Command)
@target_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def jobs(ps: str | None, log_dir: Path | None, as_json: bool) -> None:
    """Lists the jobs that were submitted: those that wait, the one that runs, and the newest that have ended."""
    with connect(ps, log_dir) as client:
        found, standing, lost = client.jobs.list(), client.jobs.standing(), client.jobs.lost()
    if as_json:
        workers = {"standing": list(map(asdict, standing)), "lost": list(map(asdict, lost))}
        click.echo(json.dumps({"jobs": [job.to_dict() for job in found], **workers}))
    else:
        tables.console().print(picture(found, standing, lost))


def picture(
    found: tuple[JobStatus, ...], standing: tuple[StandingWorker, ...], lost: tuple[StandingWorker, ...] = ()
) -> Group:
    """Returns the jobs as a table, and the standing workers in lines."""
    table = tables.make_table("jobs", "job", "name", "model", "state", "step", "workers", "exit", "submitted", "took")
    for job in found:
        step = f"{job.global_step}" + (f" of {job.steps}" if job.steps else "")
        code = str(job.exit_code) if job.has_ended else ""
        workers = str(job.workers) if job.state in ("starting", "running") else ""
        cells = (str(job.number), job.name, job.model, job.state, step, workers, code, _time(job.submitted_ms))
        table.add_row(*map(Text, cells), took(job))
    carrying = sum(bool(worker.carrying) for worker in standing)
    lines = [f"{tables.counted(len(standing), 'standing worker')}, {carrying} of them carrying out a job"]
    lines += [f"job {job.number}: {' '.join(job.reason.split())}" for job in found if job.reason]
    lines += [f"{_of_job(worker.failed)}{worker.name}: {worker.failure}" for worker in standing if worker.failure]
    lines += [f"{_of_job(worker.carrying)}{worker.name}: {gone(worker)}" for worker in lost]
    return Group(table, *map(Text, lines))


def _of_job(number: int) -> str:
    return f"job {number}: " if number else ""


def gone(worker: StandingWorker) -> str:
    """Returns for people what is known of a worker that stands by no more."""
    return f"lost, not heard of for {worker.silent_ms / 1000:.0f} s (was it killed or stopped, is its machine there?)"


def _time(milliseconds: int) -> str:
    at, now = datetime.fromtimestamp(milliseconds / 1000), datetime.now()
    return f"{at:%H:%M:%S}" if at.date() == now.date() else f"{at:%Y-%m-%d %H:%M:%S}"


def took(job: JobStatus) -> str:
    """Returns how long a job has run, for people; nothing before it starts."""
    if job.started_ms is None:
        return ""
    seconds = (job.ended_ms - job.started_ms) / 1000 if job.ended_ms is not None else job.running_ms / 1000
    return f"{seconds:.1f} s"
