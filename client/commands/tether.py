"""psctl tether: what `psctl launch --hosts FILE --ssh` runs on other hosts; people have no use for it."""

from __future__ import annotations

import click

from grpc_ps.client import remote
from grpc_ps.client.shared.flags import Command, Real


@click.command("tether", cls=Command, hidden=True)
@click.option("--grace", type=Real(above=0), required=True, help="Seconds from being told to end to being killed.")
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED)
def tether(command: tuple[str, ...], grace: float) -> int:
    """Runs COMMAND for as long as stdin is open, and exits as it does."""
    return remote.hold(command, grace)
