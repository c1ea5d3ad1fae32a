"""psctl status: what a cluster does now."""

from __future__ import annotations

import json
from pathlib import Path

import click

from grpc_ps.client.commands import tables
from grpc_ps.client.commands.idle import idle_lines
from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.shared.flags import Command


@click.command("status", cls=Command)
@target_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def status(ps: str | None, log_dir: Path | None, as_json: bool) -> None:
    """Shows a cluster once.

    The global step counts the updates of the model; a local step counts what one worker has computed. Staleness counts
    the updates, by all workers, between the parameters that a gradient was computed with and its own. It may be above
    --max-staleness, which bounds by how many applied pushes a worker is ahead of the slowest.

    Of a cluster that waits for jobs it says which workers stand by, and how a job is submitted.

    Times are means since the start, without each worker's first step; `psctl watch` shows the last ten seconds'.
    Of a worker: input, compute and encode, its own work; shard, what the slowest shard does for its push; wait, for its
    round or for slower workers; wire, the rest until the answer is there. Of a shard: stage, taking in a push; apply,
    carrying out an update; encode, making an answer.
    """
    with connect(ps, log_dir) as client:
        now = client.status()
        standing = client.jobs.standing() if not now.workers and not as_json else ()
    if as_json:
        click.echo(json.dumps(now.to_dict()))
    else:
        idle = idle_lines(now, standing, client.addresses, ps=ps, log_dir=log_dir)
        tables.console().print(tables.picture(now, more=idle))
