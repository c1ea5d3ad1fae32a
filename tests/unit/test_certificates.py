"""`psctl certs`: files of the right modes, names and uses, written once; they fit the flags that are printed."""

from __future__ import annotations

import ipaddress
import re
import shlex
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import click
import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from grpc_ps.client import certificates
from grpc_ps.client.commands.certs import certs
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.security_flags import security_from_flags, security_options, server_security_from_flags
from grpc_ps.client.shared.tokens import Role

FILES = {
    "ca.pem": 0o644,
    "ca-key.pem": 0o600,
    "server.pem": 0o644,
    "server-key.pem": 0o600,
    "client.pem": 0o644,
    "client-key.pem": 0o600,
    "tokens": 0o600,
    "reader.token": 0o600,
    "worker.token": 0o600,
    "admin.token": 0o600,
}


def make(folder: Path, *more: str) -> None:
    certs.main([str(folder), *more], standalone_mode=False)


def loaded(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_files_and_who_may_read_them(tmp_path: Path) -> None:
    make(tmp_path / "new" / "certs")
    made = {path.name: path.stat().st_mode & 0o777 for path in (tmp_path / "new" / "certs").iterdir()}
    assert made == FILES


def test_names_and_uses(tmp_path: Path) -> None:
    make(tmp_path, "--hosts", "shard-1, 10.0.0.7,[fe80::1],localhost", "--days", "3")
    ca, server, client = (loaded(tmp_path / f"{name}.pem") for name in ("ca", "server", "client"))
    names = server.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["shard-1", "localhost"]
    assert names.get_values_for_type(x509.IPAddress) == [
        ipaddress.ip_address(host) for host in ("10.0.0.7", "fe80::1", "127.0.0.1", "::1")
    ]
    for one, uses in ((server, {"CLIENT_AUTH", "SERVER_AUTH"}), (client, {"CLIENT_AUTH"})):
        one.verify_directly_issued_by(ca)
        extended = one.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        assert set(extended) == {getattr(ExtendedKeyUsageOID, use) for use in uses}
        assert not one.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        ends_in = one.not_valid_after_utc - datetime.now(timezone.utc)
        assert timedelta(days=2.9) < ends_in <= timedelta(days=3)
    assert ca.extensions.get_extension_for_class(x509.BasicConstraints).value.ca


@pytest.mark.parametrize("there", FILES)
def test_nothing_is_overwritten_and_nothing_half_written(tmp_path: Path, there: str) -> None:
    (tmp_path / there).write_text("precious")
    with pytest.raises(UsageError) as caught:
        make(tmp_path)
    assert (
        str(caught.value)
        == f"{tmp_path}: has {there} already; nothing was written: give another folder, or remove them"
    )
    assert [path.name for path in tmp_path.iterdir()] == [there]
    assert (tmp_path / there).read_text() == "precious"


@pytest.mark.parametrize("host", ["a b", "http://a", "a:1", "é"])
def test_a_host_that_is_none(tmp_path: Path, host: str) -> None:
    with pytest.raises(UsageError) as caught:
        make(tmp_path / "new", "--hosts", host)
    assert str(caught.value) == f"--hosts: {host!r} is no host name and no IP address"
    assert not (tmp_path / "new").exists()


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match=r"/file/certs: Not a directory$"):
        certificates.write_all(tmp_path / "file" / "certs", ["a"], 1)


def test_tokens_are_long_and_of_their_own(tmp_path: Path) -> None:
    for folder in ("one", "two"):
        make(tmp_path / folder)
    tokens = [
        (tmp_path / folder / f"{role}.token").read_text()
        for folder in ("one", "two")
        for role in ("reader", "worker", "admin")
    ]
    assert len(set(tokens)) == 6
    assert min(map(len, tokens)) >= 43  # 256 bits


def test_the_printed_flags_fit_the_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "my certs"
    make(folder)
    printed = capsys.readouterr().out
    lines = dict(re.findall(r"^  (\w+): +(.*?)(?: \(or .*)?$", printed, re.MULTILINE))

    @click.command()
    @click.option("--shard", default=1)
    @click.option("--host", default="0.0.0.0")
    @security_options(server=True)
    def psserver(**flags: Any) -> Any:
        return server_security_from_flags(flags)

    @click.command()
    @security_options()
    def client(**flags: Any) -> Any:
        return security_from_flags(flags)

    port, link = psserver.main(shlex.split(lines["psserver"]), standalone_mode=False)
    for name, role in (("worker", Role.WORKER), ("psctl", Role.ADMIN)):
        security = client.main(shlex.split(lines[name]), standalone_mode=False)
        assert security.token.metadata()[0][1].startswith("Bearer ")
        assert port.tokens.role(security.token.metadata()[0][1].removeprefix("Bearer ")) is role
    assert port.tokens.role(link.token.metadata()[0][1].removeprefix("Bearer ")) is Role.ADMIN
    assert not any(path.read_text().strip() in printed for path in folder.glob("*.token"))
