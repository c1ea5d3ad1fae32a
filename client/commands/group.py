"""The command group of psctl."""

from __future__ import annotations

from collections.abc import Sequence

import click

from grpc_ps.client.commands.cancel import cancel
from grpc_ps.client.commands.certs import certs
from grpc_ps.client.commands.checkpoint import checkpoint
from grpc_ps.client.commands.doctor import doctor
from grpc_ps.client.commands.evaluate import evaluate
from grpc_ps.client.commands.export import export
from grpc_ps.client.commands.health import health
from grpc_ps.client.commands.inspect import inspect
from grpc_ps.client.commands.jobs import jobs
from grpc_ps.client.commands.launch import launch
from grpc_ps.client.commands.placement import placement
from grpc_ps.client.commands.set import set_job
from grpc_ps.client.commands.status import status
from grpc_ps.client.commands.stop import stop
from grpc_ps.client.commands.submit import submit
from grpc_ps.client.commands.tether import tether
from grpc_ps.client.commands.watch import watch
from grpc_ps.client.shared.flags import Group


@click.group(
    cls=Group,
    commands=[
        *(launch, status, watch, set_job, stop, submit, jobs, cancel),
        *(checkpoint, inspect, export, placement, evaluate, certs, doctor, health, tether),
    ],
    invoke_without_command=True,
)
@click.version_option(package_name="grpc-ps", message="grpc-ps %(version)s")
@click.pass_context
def psctl(ctx: click.Context) -> None:
    """Starts, shows, steers and stops clusters of parameter-server shards and workers."""
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


def run(arguments: Sequence[str]) -> int:
    """Runs psctl with the given arguments and returns the exit code; what fails is raised."""
    return int(psctl.main(list(arguments), prog_name="psctl", standalone_mode=False) or 0)
