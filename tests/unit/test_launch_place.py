"""A process of a launch: whether it is over, and the command of its next life."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from grpc_ps.client.launch_place import Place

SHARD = ["psserver", "--shard", "1", "--port", "0", "--seed", "3"]


def place(name: str, command: list[str], code: int | None = None, **fields: Any) -> Place:
    child: Any = SimpleNamespace(code=code)
    return Place(name, command, child, **fields)


@pytest.mark.parametrize(
    ("code", "due", "over"), [(None, None, False), (0, None, True), (4, None, True), (4, 12.5, False)]
)
def test_it_is_over_when_it_has_ended_and_is_not_started_again(code: int | None, due: float | None, over: bool) -> None:
    assert place("ps 0", SHARD, code, due=due).over == over


def test_a_shard_gets_its_port_again_and_must_find_what_was_saved() -> None:
    shard = place("ps 1", SHARD, address="10.0.0.7:50123")
    known = ["psserver", "--shard", "1", "--port", "50123", "--seed", "3"]
    assert shard.command_again(saved=False) == known
    assert shard.command_again(saved=True) == [*known, "--restore"]
    assert shard.command == SHARD


def test_what_was_typed_already_is_not_said_twice() -> None:
    shard = place("ps 0", [*SHARD, "--restore"])
    assert shard.command_again(saved=True) == [*SHARD, "--restore"]


def test_a_worker_comes_again_as_it_was_but_for_what_killed_it() -> None:
    worker = place("worker 0", ["worker", "--fault", "kill@worker 0:pushed", "--fault", "drop:Join"])
    assert not worker.is_shard
    assert worker.command_again(saved=True) == ["worker", "--fault", "drop:Join"]
