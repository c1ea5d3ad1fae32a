"""`psctl doctor` against real shards, and against what is none."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

import grpc
import pytest
from history import wait_for
from light_worker import scalar
from local_cluster import LocalCluster
from ports import held_port

from grpc_ps.client import PSClient
from grpc_ps.client.commands.group import run
from grpc_ps.client.doctor.check import Check
from grpc_ps.client.doctor.shards import check_list, check_shards
from grpc_ps.client.shared.errors import JobFailed, PsError
from grpc_ps.client.shared.security import Security
from grpc_ps.protos import control_pb2

SECONDS = 20.0
STRANGER = "something answers there that is no psserver (is it another program's port, or that of --metrics-port?)"


def look(addresses: str, seconds: float = SECONDS) -> list[tuple[str, str, str]]:
    return [(check.state, check.name, check.text) for check in check_shards(addresses.split(","), Security(), seconds)]


def linked(cluster: LocalCluster) -> None:
    """Waits until every shard has its link."""
    with PSClient(cluster.addresses) as client:
        shards = len(cluster.servers)
        wait_for(lambda: sum(shard.connected for shard in client.status().shards) == shards, "the links of the shards")


def test_all_shards_are_there() -> None:
    with LocalCluster(2) as cluster:
        linked(cluster)
        lead, other = cluster.addresses.split(",")
        assert look(cluster.addresses) == [
            ("ok", "ps 0", f"{lead}: connects to 127.0.0.1"),
            ("ok", "ps 0", f"{lead}: the lead shard; job empty, global step 0"),
            ("ok", "ps 0", "protocol 1"),
            ("ok", "ps 1", f"{other}: connects to 127.0.0.1"),
            ("ok", "ps 1", f"{other}: a shard, not the lead"),
            ("ok", "shards", "all 2 are linked with the lead"),
        ]
        # Having been looked at is not having been joined: the job is as it was.
        with PSClient(cluster.addresses) as client:
            assert client.status().workers == ()
            session = client.join("test", [scalar()])
            assert session.opener
        port = cluster.addresses.rpartition(":")[2]
        assert run(["doctor", "--ps", cluster.addresses, "--port", "0", "--timeout", "30"]) == 0
        with pytest.raises(JobFailed, match=rf"^port {port}: cannot be had on 127\.0\.0\.1: it is in use"):
            run(["doctor", "--port", port])


def test_another_version_of_the_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("grpc_ps.client.doctor.shards.PROTOCOL_VERSION", 2)
    with LocalCluster(1) as cluster:
        [check] = [check for check in check_shards([cluster.addresses], Security(), SECONDS) if check.state != "ok"]
    assert (check.text, check.exit_code) == (
        f"{cluster.addresses} speaks protocol 1, this psctl 2: install one version",
        2,
    )


def test_shards_in_another_order() -> None:
    with LocalCluster(3) as cluster:
        linked(cluster)
        lead, one, two = cluster.addresses.split(",")
        found = look(f"{one},{lead},{two}")
        assert [each for each in found if each[0] != "ok"] == [
            ("fail", "ps 0", f"{one} is not the lead shard: shard 0 comes first in --ps"),
            ("fail", "ps 1", f"{lead} is the lead shard: it comes first in --ps"),
        ]
        found = look(f"{lead},{two},{one}")
        assert [each for each in found if each[0] != "ok"] == [
            ("fail", "ps 1", f"{two}: the lead knows shard 1 as {one}: is --ps in the order of the shards?"),
            ("fail", "ps 2", f"{one}: the lead knows shard 2 as {two}: is --ps in the order of the shards?"),
        ]
        assert look(f"{lead},{one}")[-1] == (
            "fail",
            "shards",
            f"--ps lists 2 shards, the lead knows 3: {lead}, {one}, {two}",
        )


def test_a_shard_that_the_lead_does_not_know() -> None:
    with LocalCluster(1) as cluster, LocalCluster(2) as other:
        both = f"{cluster.addresses},{other.addresses.split(',')[1]}"
        assert look(both)[-1] == (
            "warn",
            "shards",
            "--ps lists 2 shards; the lead has no link with shard 1: is that one of the same job (--lead)?",
        )


@contextmanager
def mute() -> Iterator[str]:
    """Takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def web_server() -> Iterator[str]:
    """Answers everything as a web server answers nonsense."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            while True:
                try:
                    peer, _ = listener.accept()
                except OSError:
                    return
                with peer, suppress(OSError):  # it may have gone
                    peer.recv(1000)
                    peer.sendall(b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n")
                    # Closed with something unread, the answer itself might be lost.
                    while peer.recv(1000):
                        pass

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{listener.getsockname()[1]}"
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(10)


@contextmanager
def other_grpc() -> Iterator[str]:
    """Speaks gRPC, and is something else."""
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_insecure_port("127.0.0.1:0")
    server.start()
    yield f"127.0.0.1:{port}"
    server.stop(None).wait(10)


def test_what_is_no_shard() -> None:
    with web_server() as web, other_grpc() as other:
        failures = failed(look(f"{web},{other}"))
    assert failures == {
        "ps 0": f"{web}: {STRANGER}",
        "ps 1": f"{other}: speaks gRPC, and is no psserver of this version: mend the list in --ps",
    }


def test_what_says_nothing() -> None:
    with mute() as silent:
        failures = failed(look(silent, 1.0))
    # Whether gRPC's patience ends first, or that of the call.
    silence = {"it takes connections and says nothing (does it still start, was it stopped, or is it no psserver?)"}
    silence.add("no answer in time (is its process stopped, or a link cut?)")
    assert failures.keys() == {"ps 0"}
    assert failures["ps 0"] in {f"{silent}: {text}" for text in silence}


def failed(found: list[tuple[str, str, str]]) -> dict[str, str]:
    """What is wrong, by the name of the check."""
    return {name: text for state, name, text in found if state == "fail"}


@pytest.mark.parametrize(
    "command",
    [["status"], ["jobs"], ["stop"], ["placement"], ["set", "--pause"], ["checkpoint"], ["health"], ["watch"]],
)
def test_all_commands_say_the_same_of_what_is_no_shard(command: list[str]) -> None:
    with web_server() as web, pytest.raises(PsError) as caught:
        run([*command, "--ps", web])
    assert (str(caught.value), caught.value.exit_code) == (f"{web}: {STRANGER}", 4)


def test_a_dead_port_is_one_line_and_exit_4(capsys: pytest.CaptureFixture[str]) -> None:
    with held_port() as port:
        says = rf"^ps 0: 127.0.0.1:{port}: nothing listens there: start psserver first"
        with pytest.raises(JobFailed, match=says) as caught:
            run(["doctor", "--ps", f"127.0.0.1:{port}", "--json"])
    assert caught.value.exit_code == 4
    assert json.loads(capsys.readouterr().out)["exit_code"] == 4


@pytest.mark.parametrize(
    ("listed", "known", "state"),
    [
        ("127.0.0.1:1,127.0.0.1:2", "0.0.0.0:2", "ok"),
        ("127.0.0.1:1,127.0.0.1:2", "0.0.0.0:3", "fail"),
        ("127.0.0.1:1,localhost:2", "127.0.0.1:2", "ok"),
        ("192.0.2.1:2,192.0.2.2:2", "192.0.2.2:2", "ok"),
        ("192.0.2.1:2,192.0.2.2:2", "192.0.2.3:2", "fail"),
        # As the lead's own machine knows it.
        ("192.0.2.1:1,192.0.2.1:2", "127.0.0.1:2", "ok"),
        ("192.0.2.1:1,192.0.2.1:2", "nosuch.invalid:2", "ok"),
        ("[2001:db8::1]:1,[2001:db8::1]:2", "[::]:2", "ok"),
    ],
)
def test_addresses_that_are_spelled_in_two_ways(listed: str, known: str, state: str) -> None:
    addresses = listed.split(",")
    shards = [
        control_pb2.ShardStatus(shard=number, address=address, connected=True)
        for number, address in enumerate((addresses[0], known))
    ]
    [check] = check_list(addresses, control_pb2.StatusResponse(shards=shards), SECONDS)
    assert isinstance(check, Check)
    assert check.state == state
