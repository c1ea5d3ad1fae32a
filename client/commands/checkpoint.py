"""psctl checkpoint: saves a job now."""

from __future__ import annotations

import json
from pathlib import Path

import click

from grpc_ps.client.commands.target import connect, target_options
from grpc_ps.client.shared.flags import Command, Whole


@click.command("checkpoint", cls=Command)
@target_options
@click.option(
    "--timeout", type=Whole(1, 600), default=600, show_default=True, help="Seconds to wait until it is written."
)
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def checkpoint(ps: str | None, log_dir: Path | None, timeout: int, as_json: bool) -> None:
    """Saves a job now, while it goes on training, and says where.

    The shards need a --checkpoint-dir. A step that is saved already is not saved again.
    """
    with connect(ps, log_dir) as client:
        saved = client.checkpoint(timeout)
    if as_json:
        click.echo(json.dumps({"global_step": saved.global_step, "path": saved.path}))
    else:
        click.echo(f"checkpoint step={saved.global_step} path={saved.path}")
