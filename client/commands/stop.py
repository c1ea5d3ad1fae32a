"""psctl stop: ends a job."""

from __future__ import annotations

import json
from pathlib import Path

import click

from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.shared.flags import Command


@click.command("stop", cls=Command)
@target_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def stop(ps: str | None, log_dir: Path | None, as_json: bool) -> None:
    """Ends a job now.

    Its workers leave, and every process exits with 0.
    """
    with connect(ps, log_dir) as client:
        global_step = client.stop()
    click.echo(json.dumps({"global_step": global_step}) if as_json else f"stopped at global step {global_step}")
