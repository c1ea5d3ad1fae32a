"""psctl certs: certificates and tokens for a cluster of its own."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from grpc_ps.client.shared.flags import Command, FilePath, Whole

# Every shard's certificate: what runs on its own machine reaches it by these.
_LOCAL = ("localhost", "127.0.0.1", "::1")


@click.command("certs", cls=Command)
@click.argument("folder", metavar="DIR", type=FilePath(file_okay=False))
@click.option(
    "--hosts",
    metavar="NAME,...",
    default="",
    help="Host names and IP addresses of the shards, as --ps has them. This machine's own loopback is always in.",
)
@click.option("--days", type=Whole(1, 36500), default=365, show_default=True, help="How long they are valid.")
def certs(folder: Path, hosts: str, days: int) -> None:
    """Makes certificates and tokens for a cluster.

    DIR gets an authority (ca.pem), a certificate for shards and one for clients with their keys, the shards' file of
    tokens, and a token file for each role. What is there is never overwritten. Keep ca-key.pem away from the cluster:
    whoever has it can pretend to be a shard.
    """
    # Only here: loading `cryptography` is of no use to the other commands.
    from grpc_ps.client import certificates

    named = [host.strip() for host in hosts.split(",") if host.strip()]
    certificates.write_all(folder, list(dict.fromkeys([*named, *_LOCAL])), days)
    where = shlex.quote(str(folder))
    shard = f"--tls-ca {where}/ca.pem --tls-cert {where}/server.pem --tls-key {where}/server-key.pem"
    click.echo(f"written to {folder}, valid for {days} days")
    click.echo(f"  psserver: {shard} --token-file {where}/tokens")
    click.echo(f"  worker:   --tls-ca {where}/ca.pem --token-file {where}/worker.token")
    click.echo(f"  psctl:    --tls-ca {where}/ca.pem --token-file {where}/admin.token (or reader.token to look only)")
    click.echo(
        f"for mutual TLS: psserver --tls-client-ca {where}/ca.pem;"
        f" worker, psctl --tls-cert {where}/client.pem --tls-key {where}/client-key.pem"
    )
