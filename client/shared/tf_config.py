"""TF_CONFIG, the variable in which TensorFlow's own programs are told their cluster, for commands without --ps.

The command lines alone read it, as the environment's way to give the flag --tf-config, and only for what flags leave
out. https://www.tensorflow.org/guide/distributed_training#setting_up_the_tf_config_environment_variable has its form.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from grpc_ps.client.shared.flags import Decorated, did_you_mean

# Nothing here may import gRPC, and so no module of errors, when this one is loaded: commands prepare the process first.

NAME = "TF_CONFIG"
TASKS = ("ps", "worker", "chief", "evaluator")
# What older programs call a chief.
_MASTER = "master"

Callback = Callable[[click.Context, click.Parameter, Any], Any]


@dataclass(frozen=True, kw_only=True)
class TfConfig:
    """The cluster as the variable has it.

    Attributes:
        shards: their addresses, shard 0 first.
        task: what this process is, one of `TASKS`; empty where the variable does not say.
        index: its number among those of its kind.
        chiefs: how many chiefs the cluster has, 0 or 1.
    """

    shards: tuple[str, ...]
    task: str = ""
    index: int = 0
    chiefs: int = 0

    @property
    def worker(self) -> int | None:
        """The index of this worker: a chief, which trains like all others, is worker 0, and workers come after it."""
        if self.task == "chief":
            return self.index
        return self.chiefs + self.index if self.task == "worker" else None


def tf_config_option(*, callback: Callback | None = None, expose: bool = True) -> Callable[[Decorated], Decorated]:
    """Adds --tf-config, which the environment gives too; `callback` and `expose` are click's."""
    return click.option(
        "--tf-config",
        metavar="JSON",
        envvar=NAME,
        show_envvar=True,
        callback=callback,
        expose_value=expose,
        help="The cluster as TensorFlow's programs are told it, for what flags leave out.",
    )


def parse(text: str | None) -> TfConfig | None:
    """Reads the variable; None where it says nothing: not set, or `{}` as TensorFlow writes it for one process.

    Raises:
        click.UsageError: one line with the place in it that is wrong, as `TF_CONFIG: task.index 3: ...`.
        UsageError: the same for an address.
    """
    record = _object(text or "{}")
    if not record:
        return None
    cluster = record.get("cluster")
    if not isinstance(cluster, dict):
        raise _wrong("cluster", "must be there, an object with a list of addresses for ps and for worker")
    sizes = {task: len(_members(cluster, task)) for task in (*TASKS[1:], _MASTER)}
    chiefs = sizes["chief"] + sizes.pop(_MASTER)
    if chiefs > 1:
        raise _wrong("cluster.chief", f"has {chiefs} members; there is one chief at most")
    shards = _shards(cluster)
    sizes = {**sizes, "ps": len(shards), "chief": chiefs}
    task, index = _task(record.get("task"), sizes)
    return TfConfig(shards=shards, task=task, index=index, chiefs=chiefs)


def shard_flags(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns psserver's flags, with --shard, --ps and --host from the variable where --shard is not given.

    A shard that the variable has on another address than a loopback one listens where others can reach it. What then
    asks for it, for errors, is added as `asks`.

    Raises what `parse` does, and click.UsageError where the variable makes this process something else.
    """
    if flags["shard"] is not None:
        return flags
    found = parse(flags["tf_config"])
    if found is None:
        raise click.UsageError("--shard: must be given, the number of this shard from 0 (or TF_CONFIG, with this task)")
    if found.task != "ps":
        is_what = (
            f"this process is a {found.task}: its command is `worker`" if found.task else "must be there, or --shard"
        )
        raise click.UsageError(f"{NAME}: task: {is_what}")
    told = {**flags, "shard": found.index, "ps": flags["ps"] or ",".join(found.shards)}
    if flags["host"] is None and flags["ps"] is None:
        from grpc_ps.client.shared.security import listening

        own = found.shards[found.index]
        asks = f"{NAME}: cluster.ps: {own}, this shard's address"
        told |= {"host": listening(own.rpartition(":")[0]), "asks": asks}
    return told


def worker_flags(flags: Mapping[str, Any]) -> Mapping[str, Any]:
    """Returns a worker's flags, with --ps and --index from the variable where --ps is not given.

    What it says of this process is added as `task`: an evaluator is none that trains.

    Raises what `parse` does, and click.UsageError where the variable makes this process a shard.
    """
    found = parse(flags["tf_config"]) if flags["ps"] is None else None
    if found is None:
        return {**flags, "task": ""}
    if found.task == "ps":
        raise click.UsageError(f"{NAME}: task.type ps: this process is a shard: its command is `psserver`")
    index = found.worker if flags["index"] is None else flags["index"]
    return {**flags, "ps": ",".join(found.shards), "index": index, "task": found.task}


def _wrong(place: str, rule: str) -> click.UsageError:
    return click.UsageError(f"{NAME}: {place}: {rule}")


def _object(text: str) -> Mapping[str, Any]:
    try:
        record = json.loads(text)
    except ValueError as error:
        raise click.UsageError(f"{NAME}: is no JSON: {error}") from None
    if not isinstance(record, dict):
        raise click.UsageError(f"{NAME}: must be a JSON object with cluster and task")
    return record


def _members(cluster: Mapping[str, Any], task: str) -> list[str]:
    """The addresses of one kind of process, as they stand there: those of workers are of no use to anybody."""
    members = cluster.get(task, [])
    if not isinstance(members, list) or not all(isinstance(member, str) for member in members):
        raise _wrong(f"cluster.{task}", 'must be a list of "HOST:PORT"')
    return members


def _shards(cluster: Mapping[str, Any]) -> tuple[str, ...]:
    from grpc_ps.client.shared.addresses import parse_addresses

    members = _members(cluster, "ps")
    if not members:
        raise _wrong("cluster.ps", 'must be there, a list of "HOST:PORT", one for each shard')
    if several := [member for member in members if "," in member]:
        raise _wrong("cluster.ps", f"{several[0]!r}: each shard has an item of its own")
    return parse_addresses(",".join(members), f"{NAME}: cluster.ps")


def _task(record: Any, sizes: Mapping[str, int]) -> tuple[str, int]:
    """What this process is, and its number among its kind; ("", 0) for a process that only looks on."""
    if record is None:
        return "", 0
    if not isinstance(record, dict):
        raise _wrong("task", "must be an object with type and index")
    task = record.get("type")
    if not isinstance(task, str) or task not in (*TASKS, _MASTER):
        hint = did_you_mean(str(task), TASKS)
        raise _wrong(f"task.type {task}", f"must be {', '.join(TASKS[:-1])} or {TASKS[-1]}{hint}")
    task = "chief" if task == _MASTER else task
    index = record.get("index", 0)
    if isinstance(index, bool) or not str(index).isdecimal():
        raise _wrong(f"task.index {index}", "must be a whole number from 0")
    # TensorFlow's evaluators stand outside of the cluster.
    size = sizes[task] or (1 if task == "evaluator" else 0)
    if int(index) >= size:
        has = f"cluster.{task} has {size}"
        raise _wrong(f"task.index {index}", f"must be 0 to {size - 1}: {has}" if size else has)
    return task, int(index)
