"""psctl doctor: what would keep a job from starting or going on, before it does."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

import click

from grpc_ps.client.doctor import certificates, folder, installation, machine, shards
from grpc_ps.client.doctor.check import Check, fail
from grpc_ps.client.shared import tf_config
from grpc_ps.client.shared.addresses import parse_addresses
from grpc_ps.client.shared.errors import JobFailed, UsageError
from grpc_ps.client.shared.flags import Command, FilePath, Real, Whole
from grpc_ps.client.shared.security_flags import security_from_flags, security_options


@click.command("doctor", cls=Command)
@click.option("--ps", metavar="HOST:PORT,...", help="All shards, shard 0 first: whether they are there, in this order.")
@tf_config.tf_config_option()
@click.option("--checkpoint-dir", type=FilePath(), metavar="DIR", help="A folder for checkpoints.")
@click.option("--port", type=Whole(0, 65535), help="A port for a shard on this machine: whether it is free.")
@click.option("--host", metavar="ADDRESS", default="127.0.0.1", show_default=True, help="The address for --port.")
@click.option(
    "--timeout", type=Real(above=0), default=3.0, show_default=True, help="Seconds for one answer of a peer or a disk."
)
@security_options()
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def doctor(as_json: bool, **flags: Any) -> None:
    """Looks for what would keep a job from working, and says what to do.

    Looks at this machine and at what is installed on it, and at what the flags name: shards, a folder, a port, files of
    TLS and tokens. It changes nothing. Exits with the code that a job would end with for the first failure: 2, 4 or 6.
    """
    checks = _all_checks(flags)
    failed = [check for check in checks if check.state == "fail"]
    if as_json:
        code = failed[0].exit_code if failed else 0
        click.echo(json.dumps({"exit_code": code, "checks": [check.record() for check in checks]}))
    else:
        click.echo("\n".join(lines(checks)))
    if failed:
        # A flag that is wrong is named in the text.
        text = failed[0].text
        first = text if text.startswith("--") else f"{failed[0].name}: {text}"
        more = f" (and {len(failed) - 1} more)" if failed[1:] else ""
        raise JobFailed(f"{first}{more}", exit_code=failed[0].exit_code)


def lines(checks: Sequence[Check]) -> list[str]:
    """Returns a line for each finding, one below the other."""
    width = max((len(check.name) for check in checks), default=0)
    return [f"{check.state:<4}  {check.name:<{width}}  {check.text}" for check in checks]


def _all_checks(flags: Mapping[str, Any]) -> list[Check]:
    """Looks at everything; what the flags themselves have wrong is raised as usual."""
    addresses = _addresses(flags)
    checks = [installation.check_python(), *installation.check_packages()]
    checks += [machine.check_cores(), machine.check_memory(), machine.check_files(), machine.check_proxies()]
    if flags["port"] is not None:
        checks.append(machine.check_port(flags["host"], flags["port"]))
    files = _file_checks(flags)
    checks += files
    # With files that cannot be read nothing can be asked.
    if addresses and not any(check.state == "fail" for check in files):
        checks += _shard_checks(addresses, flags)
    if flags["checkpoint_dir"] is not None:
        checks += folder.check_folder(flags["checkpoint_dir"], flags["timeout"])
    return checks


def _addresses(flags: Mapping[str, Any]) -> tuple[str, ...]:
    """Returns the shards of --ps, or else of TF_CONFIG; none if there is neither."""
    if flags["ps"] is not None:
        return parse_addresses(flags["ps"])
    found = tf_config.parse(flags["tf_config"])
    return found.shards if found is not None else ()


def _shard_checks(addresses: Sequence[str], flags: Mapping[str, Any]) -> list[Check]:
    try:
        return shards.check_shards(addresses, security_from_flags(flags), flags["timeout"])
    except UsageError as error:
        return [fail("ps", str(error), error.exit_code)]


def _file_checks(flags: Mapping[str, Any]) -> list[Check]:
    checks = []
    if flags["tls_ca"] is not None:
        checks.append(certificates.check_authorities(flags["tls_ca"]))
    if flags["tls_cert"] is not None or flags["tls_key"] is not None:
        checks.append(certificates.check_pair(flags["tls_cert"], flags["tls_key"]))
    if flags["token_file"] is not None:
        checks.append(certificates.check_token(flags["token_file"]))
    return checks
