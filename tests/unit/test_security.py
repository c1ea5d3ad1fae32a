"""The flags of TLS and tokens: what they make, what is refused before any socket, and that no secret is shown."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pytest
from cryptography.hazmat.primitives.serialization import BestAvailableEncryption, Encoding, PrivateFormat
from secure_bed import SECRETS, Bed

from grpc_ps.client.certificates import make_pair
from grpc_ps.client.commands.target import security_flags, target_options
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.security import Security, ServerSecurity, is_loopback
from grpc_ps.client.shared.security_flags import security_from_flags, security_options, server_security_from_flags
from grpc_ps.client.shared.tokens import Role, Token

TOKEN = SECRETS[Role.ADMIN - 1]
Typed = Callable[..., Any]


@pytest.fixture(scope="module")
def bed() -> Bed:
    return Bed()


@pytest.fixture
def files(tmp_path: Path, bed: Bed) -> Path:
    """A folder with a good file for every flag, and some that are not."""
    own, expired, client = bed.own, bed.pair(days=-1), bed.client
    encrypted = make_pair(bed.authority, "x", (), 1).key.private_bytes(
        Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(b"word")
    )
    contents = {
        "ca.pem": bed.ca,
        "server.pem": own.certificate,
        "server-key.pem": own.key,
        "expired.pem": expired.certificate,
        "expired-key.pem": expired.key,
        "client.pem": client.certificate,
        "client-key.pem": client.key,
        "locked-key.pem": encrypted,
        "rubbish": b"-----BEGIN CERTIFICATE-----\nno\n-----END CERTIFICATE-----\n",
        "tokens": "".join(f"{role.name.lower()} {SECRETS[role - 1]}\n" for role in Role).encode(),
        "readers": f"reader {SECRETS[0]}\n".encode(),
        "admin.token": f"{TOKEN}\n".encode(),
    }
    for name, content in contents.items():
        (tmp_path / name).write_bytes(content)
    return tmp_path


def typed(make: Typed, files: Path, line: str, *, server: bool) -> Any:
    """What a command makes of its flags; a word with a dot, or the name of a file, stands for that file."""

    @click.command()
    @click.option("--shard", type=int, default=0)
    @click.option("--host", default="127.0.0.1")
    @security_options(server=server)
    def command(**flags: Any) -> Any:
        return make(flags)

    names = {path.name for path in files.iterdir()} | {"none"}
    words = [str(files / word) if word in names else word for word in line.split()]
    return command.main(words, standalone_mode=False)


def client(files: Path, line: str) -> Security:
    found: Security = typed(security_from_flags, files, line, server=False)
    return found


def server(files: Path, line: str) -> tuple[ServerSecurity, Security]:
    found: tuple[ServerSecurity, Security] = typed(server_security_from_flags, files, line, server=True)
    return found


def test_nothing_is_needed_on_loopback(files: Path) -> None:
    assert client(files, "") == Security()
    assert server(files, "--shard 1") == (ServerSecurity(), Security())


def test_everything_that_a_client_is_given(files: Path, bed: Bed) -> None:
    line = (
        "--tls-ca ca.pem --tls-cert client.pem --tls-key client-key.pem --tls-server-name lead"
        " --token-file admin.token --insecure"
    )
    expected = Security(ca=bed.ca, own=bed.client, server_name="lead", token=Token(TOKEN), insecure=True)
    assert client(files, line) == expected


def test_a_shard_has_a_port_and_a_link(files: Path, bed: Bed) -> None:
    line = "--tls-ca ca.pem --tls-cert server.pem --tls-key server-key.pem --tls-client-ca ca.pem --token-file tokens"
    port, link = server(files, f"--shard 1 --tls-server-name lead {line}")
    assert port == ServerSecurity(own=bed.own, client_ca=bed.ca)
    assert port.tokens is not None
    assert [port.tokens.role(secret) for secret in SECRETS] == list(Role)
    assert link == Security(ca=bed.ca, own=bed.own, server_name="lead", token=Token(TOKEN))
    # The lead has no link, and may be given the same flags.
    assert server(files, line)[1] == Security()


CLIENT_REFUSALS = [
    ("--token-file none", "--token-file {}/none: No such file or directory"),
    ("--tls-ca none", "--tls-ca {}/none: No such file or directory"),
    ("--tls-ca rubbish", "--tls-ca {}/rubbish: is no PEM file with a certificate"),
    ("--tls-ca server-key.pem", "--tls-ca {}/server-key.pem: is no PEM file with a certificate"),
    ("--tls-ca ca.pem --tls-cert client.pem", "--tls-key: must be given, --tls-cert and --tls-key go together"),
    ("--tls-ca ca.pem --tls-key client-key.pem", "--tls-cert: must be given, --tls-cert and --tls-key go together"),
    (
        "--tls-cert client.pem --tls-key client-key.pem",
        "--tls-ca: must be given with other --tls flags: it is what servers are trusted by",
    ),
    ("--tls-server-name x", "--tls-ca: must be given with other --tls flags: it is what servers are trusted by"),
    (
        "--tls-ca ca.pem --tls-cert client.pem --tls-key server-key.pem",
        "--tls-key {}/server-key.pem: is not the key of --tls-cert {}/client.pem",
    ),
    (
        "--tls-ca ca.pem --tls-cert client.pem --tls-key locked-key.pem",
        "--tls-key {}/locked-key.pem: is no PEM file with a private key without password",
    ),
    (
        "--tls-ca ca.pem --tls-cert client.pem --tls-key client.pem",
        "--tls-key {}/client.pem: is no PEM file with a private key without password",
    ),
]


@pytest.mark.parametrize(("line", "says"), CLIENT_REFUSALS, ids=[line for line, _ in CLIENT_REFUSALS])
def test_a_clients_files_are_checked_at_the_start(files: Path, line: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        client(files, line)
    assert str(caught.value) == says.replace("{}", str(files))


def test_an_expired_certificate_is_no_start(files: Path) -> None:
    with pytest.raises(UsageError, match=r"--tls-cert .*/expired\.pem: has expired on \d{4}-\d\d-\d\d \d\d:\d\d UTC$"):
        server(files, "--tls-cert expired.pem --tls-key expired-key.pem")


OPEN_HOST = (
    "--host {}: other machines could reach this shard without TLS and token; give --tls-cert and --tls-key,"
    " --token-file, or --insecure"
)
PAIR = "--tls-cert server.pem --tls-key server-key.pem"


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "10.1.2.3", "shard-1.example", "127.0.0.1.example", "0"])
def test_a_host_that_others_reach_needs_protection(files: Path, host: str) -> None:
    with pytest.raises(UsageError) as caught:
        server(files, f"--host {host}")
    assert str(caught.value) == OPEN_HOST.format(host)
    for line in (PAIR, "--token-file tokens", "--token-file admin.token", "--insecure"):
        server(files, f"--host {host} {line}")


@pytest.mark.parametrize("host", ["127.0.0.1", "127.9.9.9", "::1", "localhost", "LOCALHOST"])
def test_loopback_needs_none(files: Path, host: str) -> None:
    assert is_loopback(host)
    assert server(files, f"--host {host}") == (ServerSecurity(), Security())


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("--tls-client-ca ca.pem", "--tls-client-ca {}/ca.pem: needs --tls-cert and --tls-key, this shard's own"),
        ("--tls-ca ca.pem", "--tls-ca {}/ca.pem: needs --tls-cert and --tls-key, this shard's own"),
        (f"--shard 1 {PAIR}", "--tls-ca: must be given to every shard but 0: it is what shard 0 is trusted by"),
        ("--shard 1 --token-file readers", "--token-file {}/readers: needs an admin token, for the link to shard 0"),
    ],
)
def test_a_shards_flags_have_to_fit_together(files: Path, line: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        server(files, line)
    assert str(caught.value) == says.replace("{}", str(files))


def test_a_token_does_not_leave_the_machine_in_the_clear(bed: Bed) -> None:
    token = Token(TOKEN)
    carried = (("authorization", f"Bearer {TOKEN}"),)
    for address in ("127.0.0.1:1", "[::1]:1", "localhost:1"):
        assert Security(token=token).metadata(address) == carried
    for address in ("10.0.0.1:1", "[fe80::1]:1", "lead:1", "localhost.example:1"):
        with pytest.raises(UsageError, match="is not sent to another machine without TLS") as caught:
            Security(token=token).metadata(address)
        assert TOKEN not in str(caught.value)
        assert Security(token=token, insecure=True).metadata(address) == carried
        assert Security(token=token, ca=bed.ca).metadata(address) == carried
        assert Security().metadata(address) is None


def test_nothing_secret_is_shown(files: Path, bed: Bed) -> None:
    line = "--tls-ca ca.pem --tls-cert server.pem --tls-key server-key.pem --token-file tokens"
    everything = [*server(files, f"--shard 1 {line}"), bed.security(own=bed.client)]
    shown = "".join(f"{it!r} {it} {vars(it)}" for it in everything)
    assert "KeyPair()" in shown
    assert "PRIVATE KEY" not in shown
    assert not any(secret in shown for secret in SECRETS)


def test_psctl_hands_its_flags_on_as_they_were_typed(files: Path) -> None:
    @click.command()
    @target_options
    def command(ps: str | None, log_dir: Path | None) -> dict[str, Any]:
        return security_flags()

    line = ["--token-file", str(files / "admin.token"), "--tls-ca", str(files / "ca.pem")]
    handed_on = command.main(["--ps", "a:1", *line], standalone_mode=False)
    assert handed_on == {"token_file": files / "admin.token", "tls_ca": files / "ca.pem"}
    assert command.main([], standalone_mode=False) == {}
