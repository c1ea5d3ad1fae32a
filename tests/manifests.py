"""The files for containers, and whether our commands take what stands in them."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import yaml

from grpc_ps.client.commands.group import psctl
from grpc_ps.psserver.command import psserver
from grpc_ps.worker.command import choose

ROOT = Path(__file__).parents[1]

Service = dict[str, Any]


def services() -> dict[str, Service]:
    """The services of compose.yaml by name."""
    whole = yaml.safe_load((ROOT / "compose.yaml").read_text(encoding="utf-8"))
    found: dict[str, Service] = whole["services"]
    return found


def words(service: Service) -> list[str]:
    """A service's command as the container gets it: compose splits a text as a shell does."""
    command = service["command"]
    return list(command) if isinstance(command, list) else shlex.split(command)


def resources() -> list[dict[str, Any]]:
    """The documents of kubernetes.yaml."""
    return list(yaml.safe_load_all((ROOT / "kubernetes.yaml").read_text(encoding="utf-8")))


def container(resource: dict[str, Any]) -> dict[str, Any]:
    """The one container of a StatefulSet or Job."""
    (found,) = resource["spec"]["template"]["spec"]["containers"]
    assert isinstance(found, dict)
    return found


def read(command: Sequence[str]) -> dict[str, Any]:
    """Reads a command line as the program itself does, without starting it; returns its flags by name.

    Raises click.UsageError for what the program refuses.
    """
    program, *flags = command
    if program == "psserver":
        return psserver.make_context(program, flags).params
    if program == "worker":
        found, name, rest = choose(flags)
        return found.make_context(name, rest).params
    assert program == "psctl"
    group = psctl.make_context(program, flags[:1] if flags[:1] == ["--help"] else [])
    subcommand = psctl.get_command(group, flags[0])
    if subcommand is None:
        raise click.UsageError(f"unknown command {flags[0]}")
    return subcommand.make_context(flags[0], flags[1:], parent=group).params
