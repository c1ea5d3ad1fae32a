"""psctl status: what a cluster does now."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from grpc_ps.client.client import ClusterStatus, PSClient
from grpc_ps.client.commands.target import addresses, target_options
from grpc_ps.client.shared.flags import Command

# Columns where the output is no terminal: enough for every column on one line.
_WIDTH = 140


@click.command("status", cls=Command)
@target_options
@click.option("--json", "as_json", is_flag=True, help="One JSON object for programs.")
def status(ps: str | None, log_dir: Path | None, as_json: bool) -> None:
    """Shows a cluster: its job, its shards and its workers.

    The global step counts the updates of the model; a local step counts what one worker has computed.
    """
    with PSClient(addresses(ps, log_dir)) as client:
        now = client.status()
    if as_json:
        click.echo(json.dumps(now.to_dict()))
        return
    console = Console(width=None if sys.stdout.isatty() else _WIDTH)
    console.print(headline(now), highlight=False, markup=False)
    console.print(_shards(now), _workers(now))


def headline(now: ClusterStatus) -> str:
    """Returns the job in one line: phase, model, mode, global step, and what it waits for."""
    settings = now.settings
    parts = [now.phase, now.model, str(settings.get("mode", "")), _progress(now)]
    if now.waiting_for:
        parts.append(f"waiting for {now.waiting_for}")
    return ", ".join(filter(None, parts))


def _progress(now: ClusterStatus) -> str:
    steps = now.settings.get("steps")
    return f"global step {now.global_step}" + (f" of {steps}" if steps else "")


def _table(title: str, *columns: str) -> Table:
    table = Table(title=title, title_justify="left")
    for number, column in enumerate(columns):
        table.add_column(column, justify="left" if number == 1 else "right", overflow="fold")
    return table


def _shards(now: ClusterStatus) -> Table:
    table = _table("shards", "shard", "address", "link", "blocks", "bytes", "log position")
    for shard in now.shards:
        link = "up" if shard.connected else "down"
        cells = (shard.shard, shard.address, link, shard.blocks, f"{shard.value_bytes:,}", shard.position)
        table.add_row(*map(str, cells))
    return table


def _workers(now: ClusterStatus) -> Table:
    columns = ("worker", "process", "local step", "applied", "late", "non-finite", "staleness", "loss", "silent")
    table = _table("workers", *columns)
    for worker in now.workers:
        loss = "" if worker.loss is None else f"{worker.loss:.6g}"
        outcomes = (worker.applied, worker.late, worker.non_finite)
        cells = (worker.worker, worker.name, worker.local_step, *outcomes, worker.staleness, loss)
        table.add_row(*map(str, cells), f"{worker.silent_ms / 1000:.1f} s")
    return table
