"""The file of `psctl launch --hosts`: what it says, what is wrong in it, and the commands of each host."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import click
import pytest
from fake_programs import install_programs
from worker_command import config_of

from grpc_ps.client.commands.group import run
from grpc_ps.client.hosts import Host, addresses, assign, parse_hosts
from grpc_ps.client.remote import ssh_command
from grpc_ps.client.shared.errors import JobFailed, PsError, UsageError
from grpc_ps.client.shared.security import listening
from grpc_ps.psserver.command import config_from_flags, psserver

FILE = """
# three machines
ann@a.example:2300 ps=2          # the lead is here
b.example  workers=2 cores=4,6
10.0.0.3   ps=1 workers=2 bin=/opt/grpc-ps/bin/
"""


def test_lines_become_hosts() -> None:
    assert parse_hosts(FILE, "f") == (
        Host(login="ann@a.example", name="a.example", port=2300, shards=2),
        Host(login="b.example", name="b.example", workers=2, cores=(4, 6)),
        Host(login="10.0.0.3", name="10.0.0.3", shards=1, workers=2, programs="/opt/grpc-ps/bin/"),
    )


def test_an_ipv6_address_has_brackets() -> None:
    (host,) = parse_hosts("[fd00::1]:7 ps=1 workers=1", "f")
    assert (host.login, host.name, host.port, addresses([host])) == ("fd00::1", "[fd00::1]", 7, ("[fd00::1]:7",))
    assert parse_hosts("[fd00::1] ps=1 workers=1", "f")[0].port == 2222


def test_every_process_has_its_command() -> None:
    found = assign(parse_hosts(FILE, "f"), shard=["--lease", "3"], worker=["--model", "m"], own={"ps 1": ["--x", "y"]})
    ps = "a.example:2300,a.example:2301,10.0.0.3:2222"
    assert [(each.host.name, each.name, each.line()) for each in found] == [
        ("a.example", "ps 0", f"psserver --shard 0 --ps {ps} --host 0.0.0.0 --lease 3"),
        ("a.example", "ps 1", f"psserver --shard 1 --ps {ps} --host 0.0.0.0 --lease 3 --x y"),
        ("b.example", "worker 0", f"worker --ps {ps} --index 0 --cores 4 --model m"),
        ("b.example", "worker 1", f"worker --ps {ps} --index 1 --cores 6 --model m"),
        ("10.0.0.3", "ps 2", f"/opt/grpc-ps/bin/psserver --shard 2 --ps {ps} --host 0.0.0.0 --lease 3"),
        ("10.0.0.3", "worker 2", f"/opt/grpc-ps/bin/worker --ps {ps} --index 2 --model m"),
        ("10.0.0.3", "worker 3", f"/opt/grpc-ps/bin/worker --ps {ps} --index 3 --model m"),
    ]


def test_workers_are_pinned_host_by_host() -> None:
    hosts = parse_hosts("a ps=1 workers=2\nb workers=3 cores=5,7", "f")
    found = assign(hosts, shard=[], worker=[], own={}, pin=True)
    cores = [each.command[each.command.index("--cores") + 1] for each in found if each.name.startswith("worker")]
    assert cores == ["0", "1", "5", "7", "5"]


@pytest.mark.parametrize(
    ("name", "host"), [("a", "0.0.0.0"), ("10.0.0.1", "0.0.0.0"), ("[fd00::1]", "::"), ("127.0.0.2", "127.0.0.2")]
)
def test_a_shard_listens_where_its_address_leads_to(name: str, host: str) -> None:
    assert listening(name) == host


def test_ssh_gets_one_line_for_the_shell_there() -> None:
    (shard, _) = assign(
        parse_hosts("ann@a ps=1 workers=1 bin=/x", "f"), shard=["--fault", "kill@a b"], worker=[], own={}
    )
    command = ssh_command(shard, ssh="/usr/bin/ssh", grace=6.0, more=["--json"])
    there = command.index("ann@a")
    assert command[:2] == ["/usr/bin/ssh", "-T"]
    assert "BatchMode=yes" in command[:there]
    assert shlex.split(" ".join(command[there + 1 :])) == [
        *("/x/psctl", "tether", "--grace", "6", "--"),
        *shard.command,
        "--json",
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", ": needs a host with ps=1 and one with workers=1, or one with both"),
        ("a ps=1", ": needs a host with ps=1 and one with workers=1"),
        ("a workers=1", ": needs a host with ps=1 and one with workers=1"),
        ("a ps=1 workers=1\n\n# b\na workers=2", ", line 4: a has line 1 already; a host has one"),
        ("a ps=1 workers=1\nann@a:2223 workers=2", ", line 2: a has line 1 already; a host has one"),
        ("\na:x ps=1", ", line 2: item 1 of 1 'a:x' has the port 'x'"),
        ("http://a ps=1", ", line 1: item 1 of 1 'http://a"),
        ("a:65535 ps=2 workers=1", ", line 1: port 65535: its 2 shards need as many ports from there on"),
        ("a", ", line 1: a has nothing to run; give ps=N, workers=N or both"),
        ("a ps=0 workers=0", ", line 1: a has nothing to run"),
        ("a ps=x", ", line 1: ps=x: must be a whole number, 0 to 1024"),
        ("a workers=9999", ", line 1: workers=9999: must be a whole number, 0 to 1024"),
        ("a worker=1", ", line 1: unknown worker (did you mean workers?); there are ps, workers, cores, bin"),
        ("a ps=1 ps=1", ", line 1: ps=1: must be ps=..., once"),
        ("a ps", ", line 1: ps: must be ps=..., once"),
        ("a workers=1 cores=2-1", ", line 1: cores=2-1: must be a list of cores: 0, 0,2 or 0-3"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(text: str, says: str) -> None:
    with pytest.raises(UsageError) as caught:
        parse_hosts(text, "--hosts f")
    assert str(caught.value).startswith(f"--hosts f{says}")


# Says what it was asked to look at where that is no model.
WORKER = """
import sys
if "mnits" in sys.argv:
    sys.stderr.write("worker: error: " + " ".join(sys.argv[1:]))
    sys.exit(2)
"""
HIDDEN = ["--model-arg", "hidden=3", "--steps", "9"]


@pytest.fixture(autouse=True)
def _worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    install_programs(tmp_path, monkeypatch, worker=WORKER)


@pytest.fixture
def hosts(tmp_path: Path) -> Any:
    def write(text: str) -> str:
        path = tmp_path / "hosts"
        path.write_text(text)
        return str(path)

    return write


def test_the_commands_are_shown_for_a_shell_and_taken_by_what_they_start(
    hosts: Any, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """The printed lines are read again as the programs themselves read them."""
    assert run(["certs", str(tmp_path / "my certs"), "--hosts", "a,b"]) == 0
    capsys.readouterr()
    flags = ["--certs", str(tmp_path / "my certs"), "--model", "linear", "--mode", "sync", "--backup", "1"]
    assert run(["launch", "--hosts", hosts("a ps=1\nb ps=1 workers=3"), *flags, "--lease", "3", "--steps", "9"]) == 0
    first, second = (block.splitlines() for block in capsys.readouterr().out.split("\n\n"))
    assert (first[0], second[0], len(first), len(second)) == ("# on a", "# on b", 2, 5)
    shards = [shlex.split(line) for line in (first[1], second[1])]
    workers = [shlex.split(line) for line in second[2:]]
    assert {words[0] for words in shards} == {"psserver"}
    assert {words[0] for words in workers} == {"worker"}
    for number, words in enumerate(shards):
        config = config_from_flags(psserver.make_context("psserver", words[1:]).params)
        assert (config.shard, config.shards, config.port, config.host) == (number, 2, 2222, "0.0.0.0")
        assert (config.limits.lease, config.security.own is None, config.security.tokens is None) == (3, False, False)
    for number, words in enumerate(workers):
        found = config_of(*words[1:])
        assert (found.addresses, found.index) == (("a:2222", "b:2222"), number)
        assert found.stated == {"mode": "sync", "workers": 2, "backup": 1, "steps": 9}
        assert found.security is not None
        assert found.security.token is not None


@pytest.mark.parametrize("flag", ["--log-dir=x", "--max-restarts=3", "--ready-timeout=9", "--no-progress"])
def test_what_is_for_processes_that_run_is_refused_where_they_are_shown(hosts: Any, flag: str) -> None:
    says = f"^{flag.partition('=')[0]}: only with --ssh: commands that are shown are run by nobody here$"
    with pytest.raises(click.UsageError, match=says):
        run(["launch", "--hosts", hosts("a ps=1 workers=1"), "--insecure", "--model", "linear", flag])


def test_workers_that_share_a_core_are_told(hosts: Any, capsys: pytest.CaptureFixture[str]) -> None:
    path = hosts("a ps=1 workers=2 cores=0\nb workers=3 cores=0-1\nc workers=2 cores=0-1\nd workers=2")
    assert run(["launch", "--hosts", path, "--insecure"]) == 0
    assert capsys.readouterr().err.splitlines() == [
        f"psctl: warning: --hosts {path}: a: 2 workers share 1 core (cores=0)",
        f"psctl: warning: --hosts {path}: b: 3 workers share 2 cores (cores=0,1)",
    ]


@pytest.mark.parametrize("model", ["file.py", "file.py:", ":build", "a:b c"])
def test_the_form_of_a_models_name_is_looked_at_before_commands_are_shown(hosts: Any, model: str) -> None:
    with pytest.raises(UsageError, match=r"expected file\.py:attribute or package\.module:attribute"):
        run(["launch", "--hosts", hosts("a ps=1 workers=1"), "--insecure", "--model", model])
    assert run(["launch", "--hosts", hosts("a ps=1 workers=1"), "--insecure", "--model", "not_here.py:build"]) == 0


def test_a_worker_looks_at_a_registered_model_before_commands_are_shown(
    hosts: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    there = ["--init-from", "w.npz", "--logdir", "logs", "--data", "there.py:load"]
    with pytest.raises(JobFailed, match=r"^--validate --steps 9 --model mnits --model-arg hidden=3$") as caught:
        run(["launch", "--hosts", hosts("a ps=1 workers=1"), "--insecure", "--model", "mnits", *there, *HIDDEN])
    assert caught.value.exit_code == 2
    assert capsys.readouterr().out == ""


def test_json_has_them_by_host(hosts: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["launch", "--hosts", hosts("a ps=1 workers=1"), "--insecure", "--model", "linear", "--json"]) == 0
    record = json.loads(capsys.readouterr().out)
    assert [words[0] for words in record["hosts"]["a"]] == ["psserver", "worker"]


@pytest.mark.parametrize(
    ("text", "typed", "says"),
    [
        ("a ps=1 workers=1", "", "other machines could reach the shards without TLS and token"),
        ("a ps=1 workers=1", "--insecure --certs x", "--certs and --insecure: give one of them, not both"),
        ("a ps=1 workers=1", "--insecure --ps 2", "--ps: the lines of --hosts "),
        ("a ps=1 workers=1", "--insecure --workers 2", "--workers: the lines of --hosts "),
        ("a ps=1 workers=1", "--insecure --mode sync --backup 1", "--backup 1: the file of --hosts has 1 worker in"),
        (None, "--ssh", "--ssh: only with --hosts"),
        (None, "--insecure", "--insecure: only with --hosts"),
    ],
)
def test_flags_that_do_not_fit_are_refused(hosts: Any, text: str | None, typed: str, says: str) -> None:
    file = ["--hosts", hosts(text)] if text else []
    with pytest.raises((click.UsageError, PsError)) as caught:
        run(["launch", *file, "--model", "linear", *typed.split()])
    error = caught.value
    assert error.exit_code == 2
    assert says in (error.format_message() if isinstance(error, click.ClickException) else str(error))


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PsError, match=r"--hosts .*none: No such file or directory"):
        run(["launch", "--hosts", str(tmp_path / "none"), "--model", "linear"])
