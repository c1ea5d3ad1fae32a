"""psctl health: whether shards serve, as gRPC's health service tells it; for the probes of containers."""

from __future__ import annotations

from pathlib import Path

import click

from grpc_ps.client.commands.target import addresses, security, target_options
from grpc_ps.client.doctor.check import Check
from grpc_ps.client.doctor.network import check_reached
from grpc_ps.client.doctor.shards import check_health
from grpc_ps.client.shard_client import ShardClient
from grpc_ps.client.shared.errors import JobFailed
from grpc_ps.client.shared.flags import Command, Real


@click.command("health", cls=Command)
@target_options
@click.option(
    "--timeout", type=Real(above=0), default=3.0, show_default=True, help="Seconds for the answer of each shard."
)
def health(ps: str | None, log_dir: Path | None, timeout: float) -> None:
    """Asks each shard whether it serves, and exits with 0 if all do.

    For probes of containers: `psctl health --ps localhost:2222`. It asks gRPC's standard health service, for which no
    token is needed, in TLS with --tls-ca.
    """
    for number, address in enumerate(addresses(ps, log_dir)):
        found = _failure(f"ps {number}", address, timeout)
        if found is not None:
            raise JobFailed(found.text, exit_code=found.exit_code)
        click.echo(f"{address}: serving")


def _failure(name: str, address: str, timeout: float) -> Check | None:
    """Returns what keeps a shard from serving, None for nothing."""
    reached = check_reached(name, address, timeout)
    if reached.state == "fail":
        return reached
    shard = ShardClient(address, security())
    try:
        return check_health(name, shard, timeout)
    finally:
        shard.close()
