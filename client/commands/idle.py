"""What is said of a cluster that has no job, or none any more."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

from grpc_ps.client.client import ClusterStatus
from grpc_ps.client.commands.programs import OUR_MODELS
from grpc_ps.client.commands.tables import counted
from grpc_ps.client.jobs import StandingWorker
from grpc_ps.client.shared.errors import NotOpen
from grpc_ps.client.shared.flags import typed

# Standing workers that are named.
_NAMED = 8


def no_model(now: ClusterStatus) -> NotOpen:
    """Makes the error of a command that needs a job's model where there is none yet."""
    waiting = f": it waits for {now.waiting_for}" if now.waiting_for else ""
    return NotOpen(f"the cluster has no model yet{waiting}")


def idle_lines(
    now: ClusterStatus,
    standing: Sequence[StandingWorker],
    addresses: Sequence[str],
    *,
    ps: str | None,
    log_dir: Path | None,
) -> list[str]:
    """Returns who stands by and how a job is submitted; nothing where a job runs, or the cluster takes none.

    `addresses` are the shards'. `ps` and `log_dir` are the flags that named the cluster, for commands that mean it too.
    """
    if now.phase not in ("empty", "stopped") or now.workers or not now.takes_jobs:
        return []
    submit = shlex.join(["psctl", "submit", *typed({"ps": ps, "log_dir": log_dir}), "--model", "NAME"])
    return [workers_line(standing, addresses), f"{submit} submits a job; NAME is one of {', '.join(OUR_MODELS)}"]


def workers_line(standing: Sequence[StandingWorker], addresses: Sequence[str]) -> str:
    """Returns who stands by, or how somebody does."""
    if not standing:
        return f"no worker stands by: worker --ps {','.join(addresses)}, without --model, is one"
    names = ", ".join(worker.name for worker in standing[:_NAMED])
    more = f" and {len(standing) - _NAMED} more" if len(standing) > _NAMED else ""
    verb = "stands" if len(standing) == 1 else "stand"
    return f"{counted(len(standing), 'worker')} {verb} by: {names}{more}"
