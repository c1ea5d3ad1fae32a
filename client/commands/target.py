"""Which cluster a command means: the flags for it, and how they become addresses."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from grpc_ps.client import cluster_file
from grpc_ps.client.shared.addresses import parse_addresses
from grpc_ps.client.shared.errors import PeerLost, UsageError

Decorated = TypeVar("Decorated", bound=Callable[..., Any])


def target_options(command: Decorated) -> Decorated:
    """Adds --ps and --log-dir to a click command."""
    command = click.option(
        "--log-dir",
        type=click.Path(path_type=Path, file_okay=False),
        help="Folder of a `psctl launch`. Without it and --ps: the current folder, or else the newest launch's.",
    )(command)
    return click.option("--ps", metavar="HOST:PORT,...", help="All shards, shard 0 first.")(command)


def addresses(ps: str | None, log_dir: Path | None) -> tuple[str, ...]:
    """Returns the addresses of the cluster meant.

    Raises:
        UsageError: the flags are wrong, or no cluster is known.
        PeerLost: the cluster of the cluster file is over.
    """
    if ps is not None and log_dir is not None:
        raise UsageError("--ps and --log-dir: give one of them, not both")
    if ps is not None:
        return parse_addresses(ps)
    folder, found = cluster_file.find(log_dir)
    # The newest of the usual folders need not be the one meant.
    hint = "" if log_dir is not None else " (give --log-dir, if yours was launched with one)"
    if found.exit_code is not None:
        raise PeerLost(f"the cluster of {folder} has ended with exit code {found.exit_code}; its logs are there{hint}")
    if not cluster_file.is_running(found.launcher):
        gone = f"its launcher (pid {found.launcher}) does not run any more"
        raise PeerLost(f"the cluster of {folder} is gone: {gone}{hint}")
    return found.addresses
