"""psctl stop: ends a job."""

from __future__ import annotations

from pathlib import Path

import click

from grpc_ps.client.client import PSClient
from grpc_ps.client.commands.target import addresses, target_options
from grpc_ps.client.shared.flags import Command


@click.command("stop", cls=Command)
@target_options
def stop(ps: str | None, log_dir: Path | None) -> None:
    """Ends a job now.

    Its workers leave, and every process exits with 0.
    """
    with PSClient(addresses(ps, log_dir)) as client:
        global_step = client.stop()
    click.echo(f"stopped at global step {global_step}")
