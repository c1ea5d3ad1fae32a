"""The ways in which a program may say where its cluster is."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

import click

from grpc_ps.client import parse_addresses
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.tf_config import parse

Cluster: TypeAlias = str | Sequence[str] | Mapping[str, Any]
"""Addresses of all shards, shard 0 first, as "HOST:PORT,..." or a list; `{"ps": [...], "worker": [...]}` as
tf.train.ClusterSpec has it; or TF_CONFIG, a mapping or its text, with `cluster` and this process's `task`."""


def parse_cluster(cluster: Cluster) -> tuple[tuple[str, ...], int | None]:
    """The shards' addresses, and the worker's index where a TF_CONFIG says it. A chief is worker 0.

    Raises:
        UsageError: it is none of these, or makes this process something else than a worker.
    """
    if isinstance(cluster, Mapping):
        return _of_record(json.dumps(cluster if "cluster" in cluster else {"cluster": cluster}))
    if isinstance(cluster, str) and cluster.lstrip().startswith("{"):
        return _of_record(cluster)
    return parse_addresses(cluster if isinstance(cluster, str) else ",".join(cluster), "cluster"), None


def _of_record(text: str) -> tuple[tuple[str, ...], int | None]:
    try:
        found = parse(text)
    except click.UsageError as error:
        raise UsageError(error.format_message()) from None
    if found is None or found.task not in ("", "worker", "chief"):
        raise UsageError(f"cluster: task {found.task if found else ''!r}: a session is a worker or the chief")
    return found.shards, found.worker
