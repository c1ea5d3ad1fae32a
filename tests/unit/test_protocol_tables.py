"""The tables of protos/README.md have every name, number and default of the code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from protocol_page import FILES, PROTOS, names, rows, rpcs, section

from grpc_ps.client.heartbeat import BEAT_SECONDS, BEATS_A_SECOND, BEATS_PER_LEASE
from grpc_ps.client.shard_client import CALL_SECONDS
from grpc_ps.client.shared import submission
from grpc_ps.client.shared.blocks import MAX_NAME
from grpc_ps.client.shared.channel_options import (
    KEEPALIVE_MS,
    KEEPALIVE_TIMEOUT_MS,
    LEAST_PING_INTERVAL_MS,
    PROTOCOL_VERSION,
    SERVER_OPTIONS,
)
from grpc_ps.client.shared.errors import EXIT_CODE_KEY, REASON_KEY, error_classes
from grpc_ps.protos import control_pb2, coordination_pb2, job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.psserver import following, link, messages, peer_limits, server, sessions, worker_service
from grpc_ps.psserver.clock import STOOD_STILL
from grpc_ps.psserver.command import psserver
from grpc_ps.psserver.config import ShardConfig
from grpc_ps.psserver.lead import coordinator, log, membership, pins, queue, standing
from grpc_ps.psserver.lead.settings import DEFAULTS, EVAL_EVERY, OPTIMIZER_DEFAULTS

# What no server says: a client or a command finds these by itself.
OWN = {"UNREACHABLE", "UNTRUSTED", "ENDING", "DATA", "NON_FINITE", "JOB_FAILED"}
# What every call may be answered, before it is looked at.
EVERYWHERE = {"UNAUTHENTICATED", "PERMISSION_DENIED"}


def test_every_refusal_is_named_with_its_status_and_exit_code() -> None:
    table = {names(row[0])[0]: (row[1], int(row[2])) for row in rows("Refusals")}
    assert table == {name: (cls.status.name, cls.exit_code) for name, cls in error_classes().items()}
    never_sent = section("Refusals").split("These names are never sent")[1].split("###")[0]
    assert {names(line)[0] for line in never_sent.splitlines() if line.startswith("| `")} == OWN
    assert {REASON_KEY, EXIT_CODE_KEY} <= set(names(section("Refusals")))


def test_every_call_has_its_refusals_as_its_proto_says() -> None:
    table = {names(call)[0]: set(names(refusals)) for call, refusals in rows("By call")}
    assert table == {
        name: set(re.findall(r"[A-Z]+(?:_[A-Z]+)*", comment.split("Errors:")[1])) & error_classes().keys() - OWN
        for name, comment in rpcs().items()
    }
    assert set().union(*table.values()) == error_classes().keys() - OWN - EVERYWHERE
    assert set(names(section("By call").split("| call |")[0])) >= EVERYWHERE


def test_every_service_and_call_is_named() -> None:
    services = {name: service for file in FILES for name, service in file.DESCRIPTOR.services_by_name.items()}
    shown = {service: calls for row in rows("The parts") if row[2] for service, *calls in [names(row[2])]}
    assert shown == {name: [call.name for call in service.methods] for name, service in services.items()} | {
        "ParameterServer": shown["ParameterServer"]
    }
    assert sorted(shown["ParameterServer"]) == sorted(call.name for call in services["ParameterServer"].methods)
    assert {row[0] for row in rows("The parts")} == {f"`{Path(file.DESCRIPTOR.name).name}`" for file in FILES}


def test_every_outcome_is_named() -> None:
    assert [names(row[0])[0] for row in rows("Outcomes")] == wire.Outcome.keys()


def test_every_entry_of_the_log_is_named() -> None:
    entries = {field.name for field in coordination_pb2.Entry.DESCRIPTOR.oneofs_by_name["entry"].fields}
    assert {names(row[0])[0] for row in rows("Entries")} == entries
    assert entries == {cls.__name__.lower() for cls in log.Entry.__args__}


def test_every_state_that_messages_name_is_in_the_state_machines() -> None:
    shown = set(names(section("State machines")))
    assert set(wire.JoinResponse.State.keys()) - {"STATE_UNSPECIFIED"} <= shown
    assert set(control_pb2.StatusResponse.Phase.keys()) <= shown


def test_every_word_for_an_activity_is_in_the_table_of_members() -> None:
    text = (PROTOS / "control.proto").read_text()
    comment = text.split("// What it does, for people:")[1].split("string activity")[0].replace("\n  //", "")
    quoted = re.compile(r'"([^"]+)"')
    assert set(quoted.findall(comment)) == set(quoted.findall(section("A member")))


def test_every_setting_is_listed_with_its_default() -> None:
    table = {names(row[0])[0]: row[1] for row in rows("Settings")}
    assert table.keys() == {field.name for field in job_pb2.Settings.DESCRIPTOR.fields} == DEFAULTS.keys()
    assert table == {name: shown_default(name) for name in DEFAULTS}
    assert f"{EVAL_EVERY} where `until` is set" in section("Settings")


def shown_default(name: str) -> str:
    others = [f"{optimizer}: {own[name]}" for optimizer, own in OPTIMIZER_DEFAULTS.items() if name in own]
    default = DEFAULTS[name]
    return "; ".join([str(default).lower() if isinstance(default, bool) else str(default), *others])


def test_times_are_those_of_the_code() -> None:
    flags: Mapping[str, Any] = {option: param.default for param in psserver.params for option in param.opts}
    table = {row[0]: (row[1], row[2]) for row in rows("Times")}
    for what, (default, flag) in table.items():
        for option in re.findall(r"psserver `(--[a-z-]+)`", flag):
            assert seconds(default) == [flags[option]], what
    config = ShardConfig(shard=0)
    for what, values in {
        "the lead's hold on one `Join`": [worker_service.MAX_WAIT],
        "the first message of a stream": [config.limits.call],
        "the log's admission of a worker that attaches": [config.limits.call],
        "a reader's wait for its snapshot": [config.limits.call],
        "the same of one `AwaitJob`": [worker_service.MAX_WAIT],
        "a standing worker, from its last `AwaitJob`": [config.limits.lease],
        "a snapshot that nobody reads": [config.limits.pin],
        "what workers keep of their pushes, for a checkpoint": [config.limits.residuals],
        "the same when the job or a shard was told to end": [config.limits.last_residuals],
        "the end: followers' links, then streams": [config.grace_seconds, server.STOP_GRACE],
        "before a follower tries its link again": [link.RETRY],
        "a member's lease, from its last sign of life": [config.limits.lease],
        "a follower without its link": [config.limits.link],
    }.items():
        assert seconds(table[what][0]) == values, what
    assert seconds(table["a unary call's deadline"][0])[0] == CALL_SECONDS
    beats = f"lease / {BEATS_PER_LEASE}, at most {BEAT_SECONDS:g} s, or a fiftieth of that for each place of the job"
    assert (table["between heartbeats"][0].startswith(beats), BEATS_A_SECOND) == (True, 50)
    assert f"clock every {coordinator.TICK:g} s; where it stood still itself for more than {STOOD_STILL:g} s" in (
        " ".join(section("Times").split())
    )
    keepalive = " ".join(section("Transport").split())
    assert f"at most every {LEAST_PING_INTERVAL_MS // 1000} s" in keepalive
    assert f"after {KEEPALIVE_MS // 1000} s and give it up {KEEPALIVE_TIMEOUT_MS // 1000} s later" in keepalive


def seconds(text: str) -> list[float]:
    return [float(number) for number in re.findall(r"([\d.]+) s\b", text)]


@pytest.mark.parametrize(
    ("what", "limit"),
    [
        ("bytes of a chunk", ShardConfig(shard=0).chunk_bytes),
        ("bytes of all values of a job, of a lazy table those of `push_rows` rows", messages.MAX_JOB_BYTES),
        ("characters of a parameter's name", MAX_NAME),
        ("answers that wait for a worker to read them", sessions.OUTBOX),
        ("snapshots that are pinned and not yet read from every shard", pins.MAX_PINS),
        ("steps at which one batch number may have been released", membership.KEPT_STEPS + 1),
        ("training streams that have not attached yet", peer_limits.MAX_UNATTACHED),
        ("streams of one connection", dict(SERVER_OPTIONS)["grpc.max_concurrent_streams"]),
        ("unary calls of one connection", peer_limits.CALLS_AT_ONCE),
        ("jobs that wait in the queue, and that have ended and are remembered", queue.MAX_QUEUED),
        ("standing workers", standing.MAX_STANDING),
        ("those that have vanished and are remembered, for an hour", standing.MAX_LOST),
        (
            "arguments of a submitted job; characters of its name; of an argument, an option or a setting",
            submission.MAX_ARGUMENTS,
        ),
        ("entries in one message to a follower", following.ENTRIES_PER_MESSAGE),
        ("entries that a follower takes before it acknowledges", link.ACKNOWLEDGE_EVERY),
    ],
)
def test_limits_are_those_of_the_code(what: str, limit: int) -> None:
    (shown,) = (row[1] for row in rows("Limits") if row[0] == what)
    assert int(re.findall(r"\d+", shown.removeprefix("1 to "))[0]) == limit


def test_the_version_is_the_codes() -> None:
    assert f"`JoinRequest.protocol` and `Hello.protocol` are {PROTOCOL_VERSION}." in section("Versions")


def test_next_ids_are_right() -> None:
    for file in FILES:
        text = (PROTOS / Path(file.DESCRIPTOR.name).name).read_text()
        for next_id, name in re.findall(r"// Next ID: (\d+)\nmessage (\w+)", text):
            fields = file.DESCRIPTOR.message_types_by_name[name].fields
            assert int(next_id) == max(field.number for field in fields) + 1, name
