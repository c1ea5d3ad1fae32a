"""What psctl's commands share: which cluster they are of, and what is no command."""

import os
import re

import click
import pytest
from fake_control import status
from fake_programs import installer, write_cluster

from grpc_ps.client.client import PSClient
from grpc_ps.client.commands.group import run
from grpc_ps.client.jobs import JobQueue
from grpc_ps.client.shared.errors import PeerLost, UsageError
from grpc_ps.client.status import cluster_status


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Installs scripts beside a psctl in a folder of their own, and makes another one the current folder."""
    return installer(tmp_path, monkeypatch)


COMMANDS = [["status"], ["stop"], ["watch"], ["set", "--pause"], ["placement"], ["evaluate"]]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_commands_need_a_cluster(install, command):
    install()
    with pytest.raises(UsageError, match="give --ps or --log-dir"):
        run(command)
    with pytest.raises(UsageError, match="not both"):
        run([*command, "--ps", "a:1", "--log-dir", "."])
    write_cluster(os.getpid(), exit_code=4)
    hint = "(give --log-dir, if yours was launched with one)"
    with pytest.raises(PeerLost, match=rf"has ended with exit code 4; its logs are there {re.escape(hint)}$"):
        run(command)
    with pytest.raises(PeerLost, match=r"has ended with exit code 4; its logs are there$"):
        run([*command, "--log-dir", "."])
    # No process has that id: they end far below it.
    write_cluster(1 << 30)
    with pytest.raises(PeerLost, match=rf"does not run any more {re.escape(hint)}$"):
        run(command)


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
def test_a_folder_without_a_cluster_says_what_to_do(install, command):
    install()
    says = r"^nowhere/cluster\.json: No such file or directory; give the --log-dir of a `psctl launch` .*, or --ps$"
    with pytest.raises(UsageError, match=says):
        run([*command, "--log-dir", "nowhere"])


@pytest.mark.parametrize("command", COMMANDS, ids=lambda command: command[0])
@pytest.mark.parametrize(
    "ps",
    ["", ",", "a:1,", ",a:1", "a:1,,b:2", "a", "a:", ":1", "a:0", "a:70000", "a:x", "http://a:1", "a:1,a:1"],
)
def test_b07_bad_lists_of_shards(command, ps):
    with pytest.raises(UsageError, match=r"^--ps:? "):
        run([*command, "--ps", ps])


def test_without_a_command_help_is_shown(capsys):
    assert run([]) == 0
    shown = capsys.readouterr().out
    assert all(name in shown for name in ("launch", "status", "watch", "set", "placement", "evaluate", "stop"))


def test_unknown_command():
    names = "cancel, certs, checkpoint, doctor, evaluate, export, health, inspect, jobs, launch, placement, set, status"
    with pytest.raises(click.UsageError, match=f"^unknown command foo; there are {names}, stop, submit, watch$"):
        run(["foo"])
    with pytest.raises(click.UsageError, match=r"unknown command lunch \(did you mean launch\?\)"):
        run(["lunch"])


def test_stop_takes_the_address_from_the_cluster_file(install, monkeypatch, capsys):
    install()
    write_cluster(os.getpid())
    monkeypatch.setattr(PSClient, "status", lambda self: cluster_status(status()))
    monkeypatch.setattr(JobQueue, "list", lambda self: ())
    monkeypatch.setattr(PSClient, "stop", lambda self: len(self.addresses) * 100 + int(self.addresses[0][-1]))
    assert run(["stop"]) == 0
    assert capsys.readouterr().out == "stopped the job at global step 101; the cluster ends\n"
