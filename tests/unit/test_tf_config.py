"""TF_CONFIG: what each command takes from it, what wins over it, and how what is wrong in it is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click
import pytest
from worker_command import config_of

from grpc_ps.client.commands.group import run
from grpc_ps.client.shared.errors import PsError
from grpc_ps.client.shared.tf_config import TfConfig, parse
from grpc_ps.psserver.command import config_from_flags, psserver
from grpc_ps.psserver.config import ShardConfig

CLUSTER = {"ps": ["a:2222", "b:2223"], "worker": ["c:1", "d:1"], "chief": ["e:1"]}


def variable(task: str = "", index: Any = 0, cluster: Any = CLUSTER) -> str:
    return json.dumps({"cluster": cluster, **({"task": {"type": task, "index": index}} if task else {})})


def shard_config(typed: str) -> ShardConfig:
    return config_from_flags(psserver.make_context("psserver", typed.split()).params)


def refusal(call: Any, *arguments: Any) -> str:
    with pytest.raises((click.UsageError, PsError)) as caught:
        call(*arguments)
    error = caught.value
    assert error.exit_code == 2
    return error.format_message() if isinstance(error, click.ClickException) else str(error)


@pytest.fixture
def tf_config(monkeypatch: pytest.MonkeyPatch) -> Any:
    return lambda text: monkeypatch.setenv("TF_CONFIG", text)


def test_a_shard_is_told_all(tf_config: Any) -> None:
    tf_config(variable("ps", 1))
    config = shard_config("--host 127.0.0.1")
    assert (config.shard, config.shards, config.port, config.lead) == (1, 2, 2223, "a:2222")


def test_a_shards_flags_win(tf_config: Any) -> None:
    tf_config(variable("ps", 1))
    assert shard_config("--port 7 --insecure").port == 7
    config = shard_config("--ps x:1,y:2")
    assert (config.shard, config.port, config.lead, config.host) == (1, 2, "x:1", "127.0.0.1")
    # With its number given nothing is looked for in the variable.
    tf_config("{broken")
    assert shard_config("--shard 0 --port 0") == ShardConfig(shard=0, port=0)


def test_a_shard_listens_where_it_is_said_to_be_with_what_protects_it(tf_config: Any) -> None:
    tf_config(variable("ps", 1))
    asks = "TF_CONFIG: cluster.ps: b:2223, this shard's address: other machines could reach this shard without TLS and"
    assert refusal(shard_config, "").startswith(asks)
    assert shard_config("--insecure").host == "0.0.0.0"
    assert shard_config("--host 127.0.0.1").is_out_of_reach
    for own, host in (("localhost:1", "localhost"), ("127.0.0.2:1", "127.0.0.2"), ("[::1]:1", "::1")):
        tf_config(variable("ps", 0, {"ps": [own]}))
        config = shard_config("")
        assert (config.host, config.port, config.is_out_of_reach) == (host, 1, False)


@pytest.mark.parametrize(
    ("task", "index", "worker"),
    [("chief", 0, 0), ("worker", 0, 1), ("worker", "1", 2), ("master", 0, 0)],
)
def test_a_worker_is_told_shards_and_index(tf_config: Any, task: str, index: Any, worker: int) -> None:
    """The chief is worker 0 and the others come after it, so that no two have one index."""
    cluster = CLUSTER if task != "master" else {"ps": CLUSTER["ps"], "master": ["e:1"]}
    tf_config(variable(task, index, cluster))
    config = config_of("--model", "linear")
    assert (config.addresses, config.index, config.evaluates) == (("a:2222", "b:2223"), worker, False)


def test_without_a_chief_workers_have_their_own_numbers(tf_config: Any) -> None:
    tf_config(variable("worker", 1, {"ps": ["a:1"], "worker": ["c:1", "d:1"]}))
    assert config_of("--model", "linear").index == 1


def test_a_workers_flags_win(tf_config: Any) -> None:
    tf_config(variable("worker", 1))
    assert config_of("--model", "linear", "--index", "7").index == 7
    tf_config("{broken")
    config = config_of("--ps", "x:1", "--model", "linear")
    assert (config.addresses, config.index) == (("x:1",), None)


def test_an_evaluator_needs_no_place_in_the_cluster(tf_config: Any) -> None:
    tf_config(variable("evaluator"))
    config = config_of("--model", "linear")
    assert (config.addresses, config.index, config.evaluates) == (("a:2222", "b:2223"), None, True)


def test_a_process_without_a_task_may_train(tf_config: Any) -> None:
    tf_config(variable())
    config = config_of("--model", "linear")
    assert (config.addresses, config.index) == (("a:2222", "b:2223"), None)


def test_the_wrong_command_is_told_the_right_one(tf_config: Any) -> None:
    tf_config(variable("ps"))
    said = "TF_CONFIG: task.type ps: this process is a shard: its command is `psserver`"
    assert refusal(config_of, "--model", "linear") == said
    tf_config(variable("chief"))
    said = "TF_CONFIG: task: this process is a chief: its command is `worker`"
    assert refusal(shard_config, "") == said
    tf_config(variable())
    assert refusal(shard_config, "") == "TF_CONFIG: task: must be there, or --shard"


def test_a_folder_that_is_named_wins_in_psctl(tf_config: Any, tmp_path: Path) -> None:
    tf_config(variable())
    for command in ("status", "watch"):
        assert "cluster.json: No such file" in refusal(run, [command, "--log-dir", str(tmp_path)])


@pytest.mark.parametrize("text", [None, "", "{}", " {} "])
def test_what_says_nothing_is_nothing(tf_config: Any, text: str | None) -> None:
    if text is not None:
        tf_config(text)
    assert parse(text) is None
    assert refusal(config_of, "--model", "linear").startswith("--ps: must be given")
    assert refusal(shard_config, "--port 1").startswith("--shard: must be given")


def test_more_than_is_needed_does_no_harm() -> None:
    record = {"cluster": {**CLUSTER, "gpu": 3}, "task": {"type": "worker", "trial": "1"}, "environment": "cloud"}
    assert parse(json.dumps(record)) == TfConfig(shards=("a:2222", "b:2223"), task="worker", index=0, chiefs=1)


PS = 'cluster.ps: must be there, a list of "HOST:PORT", one for each shard'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("{", "is no JSON: Expecting property name enclosed in double quotes: line 1 column 2 (char 1)"),
        ("a:1,b:2", "is no JSON: Expecting value: line 1 column 1 (char 0)"),
        ("[1]", "must be a JSON object with cluster and task"),
        ('{"task": {}}', "cluster: must be there, an object with a list of addresses for ps and for worker"),
        (variable(cluster={"worker": ["a:1"]}), PS),
        (variable(cluster={"ps": []}), PS),
        (variable(cluster={"ps": "a:1"}), 'cluster.ps: must be a list of "HOST:PORT"'),
        (variable(cluster={"ps": [1]}), 'cluster.ps: must be a list of "HOST:PORT"'),
        (variable(cluster={"ps": ["a:1"], "worker": {"0": "b:1"}}), 'cluster.worker: must be a list of "HOST:PORT"'),
        (variable(cluster={"ps": ["a:1", "b"]}), "cluster.ps: item 2 of 2 'b' has no port; give HOST:PORT"),
        (variable(cluster={"ps": ["a:0"]}), "cluster.ps: item 1 of 1 'a:0' has the port '0'; it is 1 to 65535"),
        (variable(cluster={"ps": ["a:1,b:1"]}), "cluster.ps: 'a:1,b:1': each shard has an item of its own"),
        (variable(cluster={"ps": ["a:1"], "chief": ["b:1", "c:1"]}), "cluster.chief: has 2 members; there is one"),
        (variable("wroker"), "task.type wroker: must be ps, worker, chief or evaluator (did you mean worker?)"),
        (variable("worker", 2), "task.index 2: must be 0 to 1: cluster.worker has 2"),
        (variable("worker", -1), "task.index -1: must be a whole number from 0"),
        (variable("worker", True), "task.index True: must be a whole number from 0"),
        (variable("ps", 2), "task.index 2: must be 0 to 1: cluster.ps has 2"),
        (variable("evaluator", 1), "task.index 1: must be 0 to 0: cluster.evaluator has 1"),
        (variable("chief", 0, {"ps": ["a:1"]}), "task.index 0: cluster.chief has 0"),
        (json.dumps({"cluster": CLUSTER, "task": "ps"}), "task: must be an object with type and index"),
        (json.dumps({"cluster": CLUSTER, "task": {"index": 0}}), "task.type None: must be ps, worker, chief"),
    ],
)
def test_what_is_wrong_is_named_with_its_place(tf_config: Any, text: str, says: str) -> None:
    tf_config(text)
    assert refusal(config_of, "--model", "linear").startswith(f"TF_CONFIG: {says}")
    assert refusal(shard_config, "").startswith(f"TF_CONFIG: {says}")
    assert refusal(run, ["status"]).startswith(f"TF_CONFIG: {says}")
