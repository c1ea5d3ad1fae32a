"""The ways in which a program may say where its cluster is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import click

from grpc_ps.client import LocalCluster
from grpc_ps.client.shared.addresses import addresses_of
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.tf_config import NAME, parse

Cluster: TypeAlias = str | Sequence[str] | Mapping[str, Any] | LocalCluster
"""Addresses of all shards, shard 0 first, as "HOST:PORT,..." or a list; a `LocalCluster`; `{"ps": [...], "worker":
[...]}`, or the tf.train.ClusterSpec that is made of it; or TF_CONFIG, a mapping or its text, with `cluster` and this
process's `task`."""

_FORMS = '"HOST:PORT,...", a list of those, {"ps": [...]}, a LocalCluster, or os.environ["TF_CONFIG"]'


def parse_cluster(cluster: Cluster) -> tuple[tuple[str, ...], int | None]:
    """The shards' addresses, and the worker's index where a TF_CONFIG says it. A chief is worker 0.

    Raises:
        UsageError: it is none of these, or makes this process something else than a worker.
        JobFailed: a local cluster whose shards have ended.
    """
    given: Any = cluster
    if isinstance(given, LocalCluster):
        given = given.addresses
    elif callable(getattr(given, "as_dict", None)):
        given = given.as_dict()
    if isinstance(given, Mapping):
        return _of_mapping(given)
    if isinstance(given, str) and given.lstrip().startswith("{"):
        return _of_record(given)
    if not isinstance(given, (str, Sequence)):
        raise UsageError(f"cluster: must be {_FORMS}; it is {given!r}")
    return addresses_of(given, "cluster"), None


def _of_mapping(cluster: Mapping[str, Any]) -> tuple[tuple[str, ...], int | None]:
    """Of a mapping its own words are right and wrong, not those of a variable that it was read from."""
    try:
        return _of_record(json.dumps(cluster if "cluster" in cluster else {"cluster": cluster}))
    except (UsageError, TypeError) as error:
        text = str(error).removeprefix(f"{NAME}: ")
        missing = f"; it has: {', '.join(map(str, cluster)) or 'nothing'}" if "must be there" in text else ""
        raise UsageError(("" if text.startswith("cluster") else "cluster: ") + text + missing) from None


def _of_record(text: str) -> tuple[tuple[str, ...], int | None]:
    try:
        found = parse(text)
    except click.UsageError as error:
        raise UsageError(error.format_message()) from None
    if found is None or found.task not in ("", "worker", "chief"):
        raise UsageError(f"cluster: task {found.task if found else ''!r}: a session is a worker or the chief")
    return found.shards, found.worker
