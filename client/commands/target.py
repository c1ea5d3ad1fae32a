"""Which cluster a command means and how it gets in: the flags for it, and the client that they make."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from grpc_ps.client import cluster_file
from grpc_ps.client.client import PSClient
from grpc_ps.client.shared import tf_config
from grpc_ps.client.shared.addresses import parse_addresses
from grpc_ps.client.shared.errors import PeerLost, UsageError
from grpc_ps.client.shared.flags import FilePath
from grpc_ps.client.shared.security import Security
from grpc_ps.client.shared.security_flags import SECURITY_FLAGS, security_from_flags, security_options

Decorated = TypeVar("Decorated", bound=Callable[..., Any])

# Where click's context keeps the values of flags that no command looks at itself: those of security, and --tf-config.
_KEPT = f"{__name__}.security"


def target_options(command: Decorated) -> Decorated:
    """Adds --ps and --log-dir to a click command, and the flags of TLS and tokens, which `connect` reads.

    Where neither of the first two is given, TF_CONFIG names the shards, if there is one.
    """
    command = security_options(callback=_keep, expose=False)(command)
    command = tf_config.tf_config_option(callback=_keep, expose=False)(command)
    command = click.option(
        "--log-dir",
        type=FilePath(file_okay=False),
        help="Folder of a `psctl launch`. Without it and --ps: the current folder, or else the newest launch's.",
    )(command)
    return click.option("--ps", metavar="HOST:PORT,...", help="All shards, shard 0 first.")(command)


def _keep(ctx: click.Context, param: click.Parameter, value: Any) -> None:
    ctx.meta.setdefault(_KEPT, {})[param.name] = value


def connect(ps: str | None, log_dir: Path | None) -> PSClient:
    """Returns a client of the cluster meant, for a `with`. To be called in a command that has `target_options`.

    Raises what `addresses` does, and UsageError for files of TLS and tokens.
    """
    return PSClient(addresses(ps, log_dir), security=security())


def security() -> Security:
    """Returns what the flags of TLS and tokens say, in a command that has `target_options`. Raises UsageError."""
    return security_from_flags(click.get_current_context().meta[_KEPT])


def security_flags() -> dict[str, Any]:
    """Returns the flags of TLS and tokens as they were given, for a command that is started."""
    kept = click.get_current_context().meta[_KEPT]
    return {name: kept[name] for name in SECURITY_FLAGS if kept[name]}


def launch_folder(ps: str | None, log_dir: Path | None) -> Path | None:
    """Returns the folder of the `psctl launch` that is meant; None where --ps or TF_CONFIG names the shards.

    Raises:
        UsageError: no cluster is known.
    """
    return None if ps is not None or _from_tf_config(log_dir) else cluster_file.find(log_dir)[0]


def _from_tf_config(log_dir: Path | None) -> tuple[str, ...]:
    """Returns the shards that TF_CONFIG names; none where --log-dir is given, or the variable is not set."""
    context = click.get_current_context(silent=True)
    text = context.meta.get(_KEPT, {}).get("tf_config") if context is not None and log_dir is None else None
    found = tf_config.parse(text)
    return found.shards if found is not None else ()


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
    if shards := _from_tf_config(log_dir):
        return shards
    folder, found = cluster_file.find(log_dir)
    # The newest of the usual folders need not be the one meant.
    hint = "" if log_dir is not None else " (give --log-dir, if yours was launched with one)"
    if found.exit_code is not None:
        raise PeerLost(f"the cluster of {folder} has ended with exit code {found.exit_code}; its logs are there{hint}")
    if not cluster_file.is_running(found.launcher):
        gone = f"its launcher (pid {found.launcher}) does not run any more"
        raise PeerLost(f"the cluster of {folder} is gone: {gone}{hint}")
    return found.addresses
