"""The flags of TLS and tokens: one definition for psserver, worker and psctl."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from grpc_ps.client.shared.flags import Decorated, FilePath, Flag

# Nothing here may import gRPC when this one is loaded: commands prepare their process first.
if TYPE_CHECKING:
    from grpc_ps.client.shared.security import Security, ServerSecurity

SECURITY_FLAGS = ("token_file", "tls_ca", "tls_cert", "tls_key", "tls_server_name", "insecure", "use_proxy")
"""Parameters that `security_options` adds, by their names; psserver has `tls_client_ca` beside them."""

Callback = Callable[[click.Context, click.Parameter, Any], Any]


def security_options(
    *, server: bool = False, callback: Callback | None = None, expose: bool = True
) -> Callable[[Decorated], Decorated]:
    """Adds the flags. `callback` and `expose` are click's: for commands that keep the values elsewhere."""
    file = FilePath(dir_okay=False)
    option = partial(click.option, cls=Flag, topic="Security", callback=callback, expose_value=expose)
    token = "one a line as `role token`; one alone may do all" if server else "one, shown with every call"
    own = "This shard's certificate" if server else "This client's certificate, for shards that want one"
    flags = {
        "token_file": option("--token-file", metavar="FILE", type=file, help=f"Tokens: {token}."),
        "tls_ca": option(
            "--tls-ca",
            metavar="FILE",
            type=file,
            help="Certificates of who certifies the shards"
            + (", to trust shard 0 by." if server else "; with it connections use TLS."),
        ),
        "tls_cert": option("--tls-cert", metavar="FILE", type=file, help=f"{own}."),
        "tls_key": option("--tls-key", metavar="FILE", type=file, help="The private key of --tls-cert."),
        "tls_client_ca": option(
            "--tls-client-ca",
            metavar="FILE",
            type=file,
            help="Certificates of who certifies clients; without one of theirs nobody gets in.",
        ),
        "tls_server_name": option(
            "--tls-server-name", metavar="NAME", help="Name in the shards' certificates, if not the one in --ps."
        ),
        "insecure": option(
            "--insecure",
            is_flag=True,
            help="Listen to other machines without TLS or token; send a token without TLS."
            if server
            else "Send the token without TLS to other machines.",
        ),
        "use_proxy": option(
            "--use-proxy", is_flag=True, help="Connect through the proxy of the environment (grpc_proxy, http_proxy)."
        ),
    }

    def decorate(command: Decorated) -> Decorated:
        for name in reversed(flags):
            if server or name != "tls_client_ca":
                command = flags[name](command)
        return command

    return decorate


def security_from_flags(flags: Mapping[str, Any]) -> Security:
    """Reads the files that a client's flags name. Raises UsageError with flag, path and reason."""
    from grpc_ps.client.shared.security import Security, read_ca, read_pair
    from grpc_ps.client.shared.tokens import read_token

    return Security(
        ca=read_ca("--tls-ca", flags["tls_ca"]) if flags["tls_ca"] is not None else None,
        own=read_pair(flags["tls_cert"], flags["tls_key"]),
        server_name=flags["tls_server_name"] or "",
        token=read_token(flags["token_file"]) if flags["token_file"] is not None else None,
        insecure=flags["insecure"],
        proxy=flags["use_proxy"],
    )


def server_security_from_flags(flags: Mapping[str, Any]) -> tuple[ServerSecurity, Security]:
    """Reads the files that psserver's flags name; returns what protects its port, and its link to the lead.

    Raises:
        UsageError: names flag, path and reason; also where others may reach the port and nothing protects it.
    """
    from grpc_ps.client.shared.errors import UsageError
    from grpc_ps.client.shared.security import Security, ServerSecurity, is_loopback, read_ca, read_pair
    from grpc_ps.client.shared.tokens import Role, Tokens, read_tokens

    own = read_pair(flags["tls_cert"], flags["tls_key"])
    roles = read_tokens(flags["token_file"]) if flags["token_file"] is not None else {}
    for flag, needs in (("--tls-client-ca", flags["tls_client_ca"]), ("--tls-ca", flags["tls_ca"])):
        if needs is not None and own is None:
            raise UsageError(f"{flag} {needs}: needs --tls-cert and --tls-key, this shard's own")
    if own is None and not roles and not flags["insecure"] and not is_loopback(flags["host"]):
        raise UsageError(
            f"{flags.get('asks') or '--host ' + flags['host']}: other machines could reach this shard without TLS and"
            " token; give --tls-cert and --tls-key, --token-file, or --insecure"
        )
    port = ServerSecurity(
        own=own,
        client_ca=read_ca("--tls-client-ca", flags["tls_client_ca"]) if flags["tls_client_ca"] is not None else None,
        tokens=Tokens(roles) if roles else None,
    )
    if flags["shard"] == 0:
        return port, Security()
    if own is not None and flags["tls_ca"] is None:
        raise UsageError("--tls-ca: must be given to every shard but 0: it is what shard 0 is trusted by")
    admin = next((token for token, role in roles.items() if role is Role.ADMIN), None)
    if roles and admin is None:
        raise UsageError(f"--token-file {flags['token_file']}: needs an admin token, for the link to shard 0")
    return port, Security(
        ca=read_ca("--tls-ca", flags["tls_ca"]) if flags["tls_ca"] is not None else None,
        own=own,
        server_name=flags["tls_server_name"] or "",
        token=admin,
        insecure=flags["insecure"],
        proxy=flags["use_proxy"],
    )
