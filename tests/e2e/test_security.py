"""The installed commands with TLS and tokens, as SECURITY.md sets them up."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest
from commands import Command, ready, run

pytestmark = pytest.mark.e2e


def test_a_cluster_with_certificates_and_tokens(tmp_path: Path) -> None:
    folder = tmp_path / "certs"
    assert run("psctl", "certs", folder).returncode == 0
    trust = ["--tls-ca", folder / "ca.pem"]
    pair = ["--tls-cert", folder / "server.pem", "--tls-key", folder / "server-key.pem"]

    def psctl(command: str, *flags: object) -> tuple[int, str]:
        done = run("psctl", command, "--ps", address, *flags)
        printed.append(done.stdout + done.stderr)
        return done.returncode, done.stderr.strip()

    printed: list[str] = []
    with Command("psserver", "--shard", 0, "--port", 0, *trust, *pair, "--token-file", folder / "tokens") as shard:
        address = ready(shard)
        reader, admin = (["--token-file", folder / f"{role}.token"] for role in ("reader", "admin"))
        assert psctl("status", *trust, *reader) == (0, "")
        wrong = "Set is for the role admin; the caller's token has reader"
        assert psctl("set", "--pause", *trust, *reader) == (2, f"psctl: error: {wrong}")
        without = "the cluster takes no call without a token (--token-file)"
        assert psctl("status", *trust) == (2, f"psctl: error: {without}")
        plain = f"{address}: it closes each connection at once (does it want TLS, --tls-ca, or is it no psserver?)"
        assert psctl("status") == (4, f"psctl: error: {plain}")
        arguments = " ".join(psutil.Process(shard.process.pid).cmdline())
        assert psctl("stop", *trust, *admin) == (0, "")
        assert shard.wait() == 0
    secrets = [path.read_text().strip() for path in folder.glob("*.token")]
    assert len(secrets) == 3
    for secret in secrets:
        assert secret not in shard.text + arguments + "".join(printed)


def test_other_machines_are_not_let_in_by_accident() -> None:
    done = run("psserver", "--shard", 0, "--port", 0, "--host", "0.0.0.0")
    assert done.returncode == 2
    assert done.stderr == (
        "psserver: error: --host 0.0.0.0: other machines could reach this shard without TLS and token;"
        " give --tls-cert and --tls-key, --token-file, or --insecure\n"
    )


@pytest.mark.slow
def test_a_worker_ends_at_once_where_waiting_is_in_vain(tmp_path: Path) -> None:
    """It would have waited for a minute."""
    for name in ("ours", "theirs"):
        assert run("psctl", "certs", tmp_path / name).returncode == 0
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    pair = ["--tls-cert", ours / "server.pem", "--tls-key", ours / "server-key.pem"]
    with Command("psserver", "--shard", 0, "--port", 0, *pair) as shard:
        address = ready(shard)
        done = run("worker", "--ps", address, "--model", "linear", "--tls-ca", theirs / "ca.pem", seconds=50)
    assert done.returncode == 2
    assert done.stderr.splitlines()[-1] == (
        f"worker: error: {address}: its certificate is not by an authority of --tls-ca: is this the right file?"
    )
