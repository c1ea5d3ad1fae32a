"""What `psctl doctor` finds without a cluster: this machine, what is installed, addresses, certificates."""

from __future__ import annotations

import importlib.metadata
import json
import socket
import threading
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from grpc_ps.client import certificates as made
from grpc_ps.client.commands.group import run
from grpc_ps.client.doctor import certificates, installation, machine, network
from grpc_ps.client.doctor.check import Check, all_within, within
from grpc_ps.client.shared.errors import JobFailed

SECONDS = 10.0


def found(check: Check) -> tuple[str, str]:
    return check.state, check.text


@pytest.mark.parametrize(
    ("version", "state", "text"),
    [
        ("3.11.7", "ok", "3.11.7"),
        ("3.14.0rc1", "fail", "3.14.0rc1: grpc-ps needs >=3.10,<3.14; make a virtual environment with such a Python"),
        ("3.9.2", "fail", "3.9.2: grpc-ps needs >=3.10,<3.14; make a virtual environment with such a Python"),
    ],
)
def test_python(version: str, state: str, text: str) -> None:
    assert found(installation.check_python(version, ">=3.10,<3.14")) == (state, text)


def test_this_installation_is_all_right() -> None:
    assert installation.check_python().state == "ok"
    checks = installation.check_packages()
    assert {check.state for check in checks} == {"ok"}
    assert {"tensorflow", "grpcio", "protobuf", "numpy"} <= {check.name for check in checks}
    assert "pytest" not in {check.name for check in checks}


def test_packages_that_are_missing_too_old_or_too_new() -> None:
    installed = {"numpy": "1.25.0", "protobuf": "8.0", "click": "9.0rc1"}

    def version(name: str) -> str:
        if name not in installed:
            raise importlib.metadata.PackageNotFoundError(name)
        return installed[name]

    wanted = ["numpy>=1.26", "protobuf>=6.31.1,<8", "click>=8.1", "tensorflow>=2.20", 'ruff>=0.12; extra == "dev"']
    checks = installation.check_packages(wanted, version)
    assert [(check.name, *found(check), check.exit_code) for check in checks] == [
        ("numpy", "fail", "1.25.0: grpc-ps needs >=1.26; pip install 'numpy>=1.26'", 2),
        ("protobuf", "fail", f"8.0: grpc-ps needs <8,>=6.31.1; pip install '{Requirement(wanted[1])}'", 2),
        ("click", "ok", "9.0rc1", 0),
        ("tensorflow", "fail", "is not installed: pip install 'tensorflow>=2.20'", 2),
    ]


def test_memory(tmp_path: Path) -> None:
    meminfo = tmp_path / "meminfo"
    meminfo.write_text("MemTotal:  8388608 kB\nMemFree: 1 kB\nMemAvailable:  4194304 kB\n")
    assert found(machine.check_memory(meminfo)) == ("ok", "4.0 of 8.0 GiB available")
    meminfo.write_text("MemTotal:  8388608 kB\nMemAvailable:  1048576 kB\n")
    assert found(machine.check_memory(meminfo)) == (
        "warn",
        "1.0 of 8.0 GiB available; a process with TensorFlow takes 0.7 GiB, and the model comes on top",
    )
    meminfo.write_text("nothing of it")
    assert found(machine.check_memory(meminfo)) == ("warn", f"{meminfo} does not say how much there is")


def test_open_files() -> None:
    assert found(machine.check_files((1024, 4096))) == ("ok", "1024 a process")
    assert found(machine.check_files((-1, -1))) == ("ok", "no limit")
    assert found(machine.check_files((256, 4096))) == (
        "warn",
        "256 a process: too few for a lead with many workers; raise it: ulimit -n 1024 (at most 4096)",
    )


def test_proxies_do_not_count() -> None:
    assert found(machine.check_proxies({"HTTPS_PROXY": "http://a:1", "no_proxy": "b", "http_proxy": ""})) == (
        "ok",
        "HTTPS_PROXY set, and not used: processes of a cluster connect directly",
    )
    assert found(machine.check_proxies({"no_proxy": "b"})) == ("ok", "none set")


def test_a_port_is_free_or_in_use_or_not_ours() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        taken = machine.check_port("127.0.0.1", port)
    assert (*found(taken), taken.name, taken.exit_code) == (
        "fail",
        "cannot be had on 127.0.0.1: it is in use; end what has it, or give another --port (0 picks a free one)",
        f"port {port}",
        2,
    )
    assert found(machine.check_port("127.0.0.1", port)) == ("ok", "free on 127.0.0.1")
    assert found(machine.check_port("192.0.2.1", 0)) == (
        "fail",
        "cannot be had on 192.0.2.1: that is no address of this machine; give one of its own as --host, or 0.0.0.0 for"
        " all",
    )
    assert machine.check_port("nosuch.invalid", 1).text.startswith("--host nosuch.invalid cannot be resolved: ")


def test_an_address_that_is_reached() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = f"127.0.0.1:{listener.getsockname()[1]}"
        assert found(network.check_reached("ps 0", address, SECONDS)) == (
            "ok",
            f"{address}: connects to 127.0.0.1",
        )
    nothing = network.check_reached("ps 0", address, SECONDS)
    assert (*found(nothing), nothing.exit_code) == (
        "fail",
        f"{address}: nothing listens there: start psserver first, or mend the port in --ps",
        4,
    )


def test_a_name_with_several_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that only one of its addresses answers for is worth a word: which one a process gets is not known."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        entries = [(socket.AF_INET, socket.SOCK_STREAM, 0, "", (ip, port)) for ip in ("127.0.0.1", "127.0.0.2")]
        real = socket.getaddrinfo
        monkeypatch.setattr(
            socket, "getaddrinfo", lambda host, *more, **kw: entries if host == "both" else real(host, *more, **kw)
        )
        assert found(network.check_reached("ps 0", f"both:{port}", SECONDS)) == (
            "warn",
            f"both:{port}: connects to 127.0.0.1, not to 127.0.0.2: nothing listens there: start psserver first, or"
            " mend the port in --ps",
        )


def test_names_that_mean_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    wrong = network.check_reached("ps 1", "nosuch.invalid:1", SECONDS)
    assert wrong.text.startswith("nosuch.invalid:1: nosuch.invalid cannot be resolved: ")
    assert wrong.exit_code == 4
    release = threading.Event()
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: release.wait(SECONDS) and [])
    assert found(network.check_reached("ps 1", "slow:1", 0.05)) == (
        "fail",
        "slow:1: slow was not resolved within 0.05 s: is the name server reachable?",
    )
    release.set()


def test_a_connection_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    # The short time is for the connection: a busy machine may need more to look the address up.
    monkeypatch.setattr(network, "within", lambda seconds, work: work())
    with socket.socket() as full:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        port = full.getsockname()[1]
        with socket.create_connection(("127.0.0.1", port)), socket.socket() as second:
            second.setblocking(False)
            second.connect_ex(("127.0.0.1", port))
            assert found(network.check_reached("ps 0", f"127.0.0.1:{port}", 0.2)) == (
                "fail",
                f"127.0.0.1:{port}: no answer within 0.2 s: is the machine up, does a firewall swallow port {port}?",
            )


def test_work_without_a_deadline_of_its_own_gets_one() -> None:
    release = threading.Event()
    assert within(SECONDS, lambda: 3) == 3
    with pytest.raises(TimeoutError):
        within(0.01, lambda: release.wait(SECONDS))
    release.set()
    with pytest.raises(KeyError):
        all_within(SECONDS, [lambda: {}["missing"]])


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    """A folder with an authority and a pair for shards, which hold for 100 days."""
    authority = made.make_authority(100)
    pair = made.make_pair(authority, "shards", ["localhost", "127.0.0.1"], 100)
    (tmp_path / "ca.pem").write_bytes(authority.certificate_pem)
    (tmp_path / "server.pem").write_bytes(pair.certificate_pem)
    (tmp_path / "server-key.pem").write_bytes(pair.key_pem)
    (tmp_path / "ca-key.pem").write_bytes(authority.key_pem)
    return tmp_path


def test_certificates(certs: Path) -> None:
    cert, key = certs / "server.pem", certs / "server-key.pem"
    now = datetime.now(timezone.utc)
    assert found(certificates.check_pair(cert, key, now)) == ("ok", f"{cert}: for localhost, 127.0.0.1; 99 days left")
    assert certificates.check_authorities(certs / "ca.pem", now).state == "ok"
    assert found(certificates.check_pair(cert, key, now + timedelta(days=90))) == (
        "warn",
        f"{cert}: for localhost, 127.0.0.1; expires in 9 days: make new ones (psctl certs)",
    )
    late = certificates.check_authorities(certs / "ca.pem", now + timedelta(days=101))
    assert (late.state, late.exit_code) == ("fail", 2)
    assert "; has expired on " in late.text


def test_certificates_that_do_not_fit(certs: Path) -> None:
    cert = certs / "server.pem"
    foreign = certificates.check_pair(cert, certs / "ca-key.pem")
    assert (*found(foreign), foreign.exit_code) == (
        "fail",
        f"--tls-key {certs / 'ca-key.pem'}: is not the key of --tls-cert {cert}",
        2,
    )
    assert certificates.check_pair(cert, None).text.startswith("--tls-key: must be given")
    missing = certificates.check_authorities(certs / "none.pem")
    assert found(missing) == ("fail", f"--tls-ca {certs / 'none.pem'}: No such file or directory")


def test_token_files_are_told_and_not_shown(tmp_path: Path) -> None:
    file = tmp_path / "tokens"
    file.write_text("0123456789abcdef-secret\n")
    assert found(certificates.check_token(file)) == ("ok", f"{file}: one token")
    file.write_text("worker 0123456789abcdef-secret\nadmin fedcba9876543210-secret\n")
    assert found(certificates.check_token(file)) == ("ok", f"{file}: tokens of a server, for admin, worker")
    file.write_text("short\n")
    check = certificates.check_token(file)
    assert check.state == "fail"
    assert "short\n" not in check.text


def test_the_command_says_a_line_for_each_and_exits_with_the_first_failure(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "file").touch()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        flags = ["doctor", "--port", port, "--checkpoint-dir", str(tmp_path / "file")]
        with pytest.raises(JobFailed, match=rf"^port {port}: cannot be had .* \(and 1 more\)$") as caught:
            run(flags)
        assert caught.value.exit_code == 2
        said = capsys.readouterr().out.splitlines()
        with pytest.raises(JobFailed) as caught:
            run([*flags, "--json"])
        record = json.loads(capsys.readouterr().out)
    assert len({line.find(" ", 6) > 0 for line in said}) == 1
    assert [line.split()[0] for line in said] == [check["state"] for check in record["checks"]]
    assert record["exit_code"] == 2
    assert [check["name"] for check in record["checks"] if check["state"] == "fail"] == [f"port {port}", "checkpoints"]
    with pytest.raises(JobFailed) as caught:
        run(["doctor", "--checkpoint-dir", str(tmp_path / "file")])
    assert caught.value.exit_code == 6
    assert run(["doctor", "--port", "0"]) == 0
