"""`psctl launch --hosts FILE`: the flags of it, the commands of each host, and how they are shown or run by ssh."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from grpc_ps.client import certificates
from grpc_ps.client.commands.programs import run_worker
from grpc_ps.client.commands.tables import counted
from grpc_ps.client.hosts import Assigned, Host, assign, parse_hosts, shared_cores
from grpc_ps.client.remote import ssh_command
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.flags import Decorated, FilePath, Flag, flag_of, typed
from grpc_ps.client.shared.limit_flags import LIMIT_FLAGS
from grpc_ps.client.shared.security import is_loopback

_TOPIC = "Several hosts"
# Seconds beyond --grace that a process on another host gets to end in, once its connection has.
_SLACK_SECONDS = 1.0
# Flags for whoever watches over processes.
_WATCHING = ("log_dir", "ready_timeout", "max_restarts", "no_progress")
# For a worker to look at flags: it imports no TensorFlow for that.
_CHECK_SECONDS = 60.0
# For the words of a process that was told to end to arrive, beyond that.
TRANSIT_SECONDS = 5.0


def hosts_options(command: Decorated) -> Decorated:
    """Adds --hosts and what goes with it to a click command."""
    lines = "Processes on the hosts of FILE, one a line: HOST[:PORT] ps=1 workers=2 cores=0,1."
    options = (
        click.option("--hosts", cls=Flag, topic=_TOPIC, metavar="FILE", type=FilePath(dir_okay=False), help=lines),
        click.option("--ssh", cls=Flag, topic=_TOPIC, is_flag=True, help="Run them by ssh, in place of showing them."),
        click.option(
            "--certs",
            cls=Flag,
            topic=_TOPIC,
            metavar="DIR",
            help="The folder of `psctl certs` on every host, for TLS and tokens.",
        ),
        click.option(
            "--insecure", cls=Flag, topic=_TOPIC, is_flag=True, help="Neither TLS nor tokens: who is there may train."
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def hosts_from_flags(values: Mapping[str, Any]) -> tuple[Host, ...]:
    """Reads the file of --hosts; none where that is not given.

    Raises:
        UsageError: the file cannot be read, a line is wrong, or others could reach the shards unhindered.
        click.UsageError: flags that exclude each other.
    """
    path: Path | None = values["hosts"]
    if path is None:
        if alone := [flag for flag in ("ssh", "certs", "insecure") if values[flag]]:
            raise click.UsageError(f"--{alone[0]}: only with --hosts: all is on this machine's loopback otherwise")
        return ()
    _check_given(path, runs=values["ssh"])
    try:
        hosts = parse_hosts(path.read_text(encoding="utf-8"), f"--hosts {path}")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--hosts {path}: {getattr(error, 'strerror', None) or 'is no text'}") from None
    for note in shared_cores(hosts):
        click.echo(f"psctl: warning: --hosts {path}: {note}", err=True)
    if values["certs"] and values["insecure"]:
        raise click.UsageError("--certs and --insecure: give one of them, not both")
    protected = values["certs"] or values["insecure"]
    if not protected and not all(is_loopback(host.name) for host in hosts):
        raise UsageError(
            f"--hosts {path}: other machines could reach the shards without TLS and token; make a folder with"
            f" `psctl certs certs --hosts {','.join(host.name for host in hosts if host.shards)}`, copy it to all of"
            " them and give --certs, or --insecure"
        )
    return hosts


def _check_given(path: Path, *, runs: bool) -> None:
    """Refuses numbers that are the file's to say, and what is for processes that are watched where none is run."""
    source = click.get_current_context().get_parameter_source
    for flag, name in (("--ps", "shards"), ("--workers", "workers")):
        if source(name) not in (ParameterSource.DEFAULT, None):
            raise click.UsageError(f"{flag}: the lines of --hosts {path} say how many there are")
    for name in _WATCHING:
        # A file of flags may have them for other launches.
        if not runs and source(name) is ParameterSource.COMMANDLINE:
            raise click.UsageError(f"{flag_of(name)}: only with --ssh: commands that are shown are run by nobody here")


def without_defaults(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags without times that were not given: commands that people read have what was said alone."""
    source = click.get_current_context().get_parameter_source
    left_out = [name for name in LIMIT_FLAGS if source(name) in (ParameterSource.DEFAULT, None)]
    return {**values, **dict.fromkeys(left_out)}


def validate(model: str | None, flags: Sequence[str]) -> None:
    """Has a worker look at the flags of a registered model, as those of a job are that is submitted.

    A model of somebody's own lies on the hosts; of that only the form of its name can be looked at here.

    Raises:
        UsageError, JobFailed: what is wrong; exit code 2.
    """
    if model is None:
        return
    if ":" not in model and not model.endswith(".py"):
        run_worker(["--validate", *flags], seconds=_CHECK_SECONDS, what="worker --validate")
    elif not model.rpartition(":")[2].isidentifier() or model.startswith(":"):
        raise UsageError(f"--model {model}: expected file.py:attribute or package.module:attribute")


def without_files(values: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the flags without what lies on the hosts, and cannot be looked at from here."""
    data = None if ":" in (values["data"] or "") else values["data"]
    return {**values, "init_from": None, "logdir": None, "summary_every": None, "data": data}


def sizes(hosts: Sequence[Host], backup: int) -> tuple[int, int]:
    """Returns the number of shards, and that of workers without the backup workers.

    Raises:
        click.UsageError: all would be backup workers.
    """
    workers = sum(host.workers for host in hosts)
    if backup >= workers:
        raise click.UsageError(f"--backup {backup}: the file of --hosts has {counted(workers, 'worker')} in all")
    return sum(host.shards for host in hosts), workers - backup


def processes(
    hosts: Sequence[Host],
    values: Mapping[str, Any],
    *,
    shard: Sequence[str],
    worker: Sequence[str],
    own: Mapping[str, Sequence[str]],
) -> tuple[Assigned, ...]:
    """Returns all processes with their commands; `shard`, `worker` and `own` are the flags that they have anywhere."""
    mine, theirs = _protection(values)
    return assign(hosts, shard=[*mine, *shard], worker=[*worker, *theirs], own=own, pin=values["pin_cores"])


def _protection(values: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Returns the flags of TLS and tokens for shards and for workers."""
    if values["insecure"]:
        return ["--insecure"], []
    if not values["certs"]:
        return [], []
    folder = values["certs"].rstrip("/")
    ca = {"tls_ca": f"{folder}/{certificates.CA}"}
    shard = {
        **ca,
        "tls_cert": f"{folder}/{certificates.SERVER}",
        "tls_key": f"{folder}/{certificates.SERVER_KEY}",
        "token_file": f"{folder}/{certificates.TOKENS}",
    }
    return typed(shard), typed({**ca, "token_file": f"{folder}/worker.token"})


def show_or_run(assigned: Sequence[Assigned], values: Mapping[str, Any]) -> dict[str, list[str]] | None:
    """Shows the processes' commands and returns None, or returns those that run them from here, with --ssh.

    Raises:
        UsageError: there is no ssh.
    """
    if values["ssh"]:
        return _by_ssh(assigned, values["grace"])
    _show(assigned, as_json=values["as_json"])
    return None


def _show(assigned: Sequence[Assigned], *, as_json: bool) -> None:
    """Prints each host's commands, for a shell there."""
    by_host: dict[str, list[Assigned]] = {}
    for process in assigned:
        by_host.setdefault(process.host.login, []).append(process)
    if as_json:
        commands = {host: [list(process.command) for process in mine] for host, mine in by_host.items()}
        click.echo(json.dumps({"hosts": commands}))
        return
    for number, (host, mine) in enumerate(by_host.items()):
        click.echo("\n".join([*([""] if number else []), f"# on {host}", *(process.line() for process in mine)]))


def _by_ssh(assigned: Sequence[Assigned], grace: float) -> dict[str, list[str]]:
    """Returns the commands that run the processes from here, by their names; workers print their summary."""
    ssh = shutil.which("ssh")
    if ssh is None:
        raise UsageError("--ssh: there is no command ssh here; without the flag the commands are shown")
    grace += _SLACK_SECONDS
    return {
        process.name: ssh_command(
            process, ssh=ssh, grace=grace, more=["--json"] if process.name.startswith("worker") else []
        )
        for process in assigned
    }
