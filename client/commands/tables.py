"""A cluster's state as lines and tables for people: what `psctl status` and `psctl watch` show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group
from rich.table import Table
from rich.text import Text

from grpc_ps.client.client import ClusterStatus, WorkerStatus
from grpc_ps.client.shared.endings import came_to_its_end
from grpc_ps.client.shared.wire_flags import what_travels
from grpc_ps.client.time_shares import ShardShares, Shares, StepShares, shares

# Columns where the output is no terminal: enough for every column on one line.
WIDTH = 160

_LEFT = frozenset({"address", "process", "activity", "parameter", "shape", "table"})


def console() -> Console:
    """Returns the console for stdout, wide where that is no terminal."""
    found = Console()
    return found if found.is_terminal else Console(width=WIDTH)


def make_table(title: str, *columns: str) -> Table:
    """Makes an empty table: numbers to the right, words to the left, which alone are folded where the room is short."""
    looks: dict[str, Any] = {"box": SIMPLE_HEAD, "show_edge": False, "padding": 0, "pad_edge": False}
    table = Table(title=title, title_justify="left", title_style="bold", **looks)
    for column in columns:
        words = column in _LEFT
        table.add_column(column, justify="left" if words else "right", overflow="fold", no_wrap=not words)
    return table


def picture(
    now: ClusterStatus,
    *,
    steps_per_second: float | None = None,
    since: ClusterStatus | None = None,
    more: Sequence[str] = (),
) -> Group:
    """Returns all of a cluster's state: some lines, to which `more` is added, and tables.

    Times are those that came since an earlier reading.
    """
    rate = pace(steps_per_second)
    head, how = (", ".join(filter(None, parts)) for parts in ((headline(now), rate), (details(now), loss(now))))
    lines = [head, how, evaluation(now), checkpoint(now)]
    lines += more
    found = (shards_table(now), held_table(now), *([workers_table(now)] if now.workers else []))
    state = [table for table in found if table.row_count]
    return Group(*(Text(line) for line in lines if line), *state, *times_tables(shares(now, since)))


def headline(now: ClusterStatus) -> str:
    """Returns the job in one line: phase, model, mode, global step, and what it waits for or how it ended.

    One that nobody had to stop is "done".
    """
    settings = now.settings
    number = f"job {now.job_number}" if now.job_number else ""
    done = now.phase == "stopped" and came_to_its_end(now.exit_code, now.reason)
    parts = ["done" if done else now.phase, number, now.model, str(settings.get("mode", "")), _progress(now)]
    if now.paused:
        parts.append("paused")
    if now.waiting_for:
        parts.append(f"waiting for {now.waiting_for}")
    if now.phase == "stopped":
        parts.append(_end(now))
    return ", ".join(filter(None, parts))


def _end(now: ClusterStatus) -> str:
    failed = f"failed with exit code {now.exit_code}" if now.exit_code else ""
    return ": ".join(filter(None, (failed, " ".join(now.reason.split()))))


def _progress(now: ClusterStatus) -> str:
    steps = now.settings.get("steps")
    return f"global step {now.global_step}" + (f" of {steps}" if steps else "")


def pace(steps_per_second: float | None) -> str:
    """Returns how fast the global step rises; nothing where that is not known."""
    return "" if steps_per_second is None else f"{steps_per_second:.4g} steps/s"


def loss(now: ClusterStatus) -> str:
    """Returns the loss of the newest applied pushes; nothing before there are some."""
    return "" if now.loss is None else f"loss {now.loss:.4g}"


def details(now: ClusterStatus) -> str:
    """Returns in one line what `psctl set` can change, the metric that ends the job, and what travels reduced."""
    settings = now.settings
    if not settings:
        return ""
    parts = [f"learning rate {now.learning_rate:.6g}" + _factor(now.learning_rate_factor)]
    if settings.get("mode") == "sync":
        parts.append(f"N = {settings.get('workers')}, K = {settings.get('backup')}")
        least = settings.get("min_workers")
        parts += [f"at least {counted(least, 'worker')}"] if least else []
    else:
        parts.append(_ahead(settings.get("max_staleness", -1)))
    parts += [f"until {settings['until']}"] if settings.get("until") else []
    parts.append(what_travels(settings))
    return ", ".join(filter(None, parts))


def _factor(factor: float) -> str:
    return "" if factor == 1 else f" ({factor:.6g} of the schedule's)"


def _ahead(most: object) -> str:
    """The bound in the words of --max-staleness: it counts pushes, unlike the workers' column, which counts updates."""
    if most == -1:
        return "no worker waits for slower ones"
    return f"at most {counted(most, 'push', 'pushes')} ahead of the slowest"


def counted(number: object, one: str, more: str | None = None) -> str:
    """Returns a number with its noun: `1 worker`, `2 workers`."""
    return f"{number} {one}" if number == 1 else f"{number} {more or one + 's'}"


def bound(value: object) -> str:
    """Returns a bound on staleness for people: -1 is none."""
    return "none" if value == -1 else str(value)


def evaluation(now: ClusterStatus) -> str:
    """Returns the newest evaluation in one line; nothing before the first."""
    found = now.evaluation
    return "" if found is None else f"evaluation at global step {found.global_step}: {metrics_text(found.metrics)}"


def checkpoint(now: ClusterStatus) -> str:
    """Returns the checkpoints in one line; nothing where the shards have no folder for them."""
    saved = now.checkpoint
    if saved is None:
        return ""
    newest = "none yet" if saved.global_step is None else f"step {saved.global_step}, {_ago(saved.age_ms)}"
    parts = [f"checkpoint: {newest}", f"in {saved.directory}", *checkpoint_notes(now)]
    return ", ".join(parts)


def checkpoint_notes(now: ClusterStatus) -> list[str]:
    """Returns what is out of the ordinary about the checkpoints."""
    saved = now.checkpoint
    if saved is None:
        return []
    times = counted(now.rollbacks, "rollback")
    notes = {
        "saving": saved.saving,
        f"last attempt failed: {' '.join(saved.error.split())}": saved.error,
        f"resumed from step {saved.restored_step}": saved.restored_step is not None,
        times: now.rollbacks,
    }
    return [text for text, holds in notes.items() if holds]


def _ago(milliseconds: int) -> str:
    seconds = milliseconds / 1000
    return f"{seconds:.0f} s ago" if seconds < 120 else f"{seconds / 60:.0f} min ago"


def metrics_text(metrics: Mapping[str, float | None]) -> str:
    """Returns metrics as `name value, name value`; None stands for one that is not finite."""
    shown = {name: "not finite" if value is None else f"{value:.6g}" for name, value in metrics.items()}
    return ", ".join(f"{name} {shown[name]}" for name in sorted(shown))


def result_text(metrics: Mapping[str, float | None], last: float | None) -> str:
    """Returns what a job has come to: its metrics, or without any its last loss; empty without both."""
    if metrics:
        return metrics_text(metrics)
    return "" if last is None else f"loss {last:.6g}"


def shards_table(now: ClusterStatus) -> Table:
    """Returns the shards: what is placed on each, and how far behind the lead's log it is."""
    table = make_table("shards", "shard", "address", "link", "blocks", "bytes", "log\nposition", "behind")
    for shard in now.shards:
        link = "up" if shard.connected else "down"
        behind = max(0, now.position - shard.position)
        cells = (shard.shard, shard.address, link, shard.blocks, f"{shard.value_bytes:,}", shard.position, behind)
        table.add_row(*map(str, cells))
    return table


def held_table(now: ClusterStatus) -> Table:
    """Returns the rows of tables that each shard holds, and how many it may; without any, there are no tables."""
    table = make_table("tables", "table", "shard", "rows held", "capacity", "bytes")
    for name in sorted({each.name for shard in now.shards for each in shard.tables}):
        for shard in now.shards:
            for each in shard.tables:
                if each.name == name:
                    capacity = f"{each.capacity:,}" if each.capacity else ""
                    table.add_row(name, str(shard.shard), f"{each.rows:,}", capacity, f"{each.bytes:,}")
    return table


def workers_table(now: ClusterStatus) -> Table:
    """Returns the workers: what each does, and what became of its pushes."""
    columns = ("worker", "process", "activity", "local\nstep", "batch", "applied", "late", "non-\nfinite")
    table = make_table("workers", *columns, "staleness\n(mean, max)", "loss", "silent")
    for worker in now.workers:
        last = "" if worker.loss is None else f"{worker.loss:.4g}"
        batch = "" if worker.batch is None else worker.batch
        outcomes = (worker.applied, worker.late, worker.non_finite)
        staleness = f"{worker.staleness} ({worker.mean_staleness:.1f}, {worker.max_staleness})"
        cells = (worker.worker, worker.name, _activity(worker), worker.local_step, batch, *outcomes, staleness, last)
        table.add_row(*map(str, cells), f"{worker.silent_ms / 1000:.1f} s")
    return table


def times_tables(found: Shares) -> list[Table]:
    """Returns where the time goes, in milliseconds and parts of the whole; nothing where nobody has told yet."""
    steps = _times_table("time of a step, ms", "worker", found.workers, StepShares)
    updates = _times_table("time on a shard, ms", "shard", found.shards, ShardShares)
    return [table for table in (steps, updates) if table.row_count]


def _times_table(title: str, who: str, rows: Mapping[int, Any], kind: type[StepShares] | type[ShardShares]) -> Table:
    table = make_table(title, who, "all", *(field.name for field in fields(kind)))
    for number, row in sorted(rows.items()):
        parts = asdict(row).values()
        whole = sum(parts)
        cells = (f"{_ms(part)} ({part / whole if whole else 0:.0%})" for part in parts)
        table.add_row(str(number), _ms(whole), *cells)
    return table


def _ms(milliseconds: float) -> str:
    return f"{milliseconds:.2f}" if milliseconds < 100 else f"{milliseconds:.0f}"


def step_time(found: Shares) -> str:
    """Returns the workers' mean step in one line, and what took the most of it; nothing where nobody has told yet."""
    steps = [asdict(row) for row in found.workers.values()]
    if not steps:
        return ""
    parts = {name: sum(step[name] for step in steps) / len(steps) for name in steps[0]}
    whole = sum(parts.values())
    largest = sorted(parts, key=lambda name: -parts[name])[:2]
    shown = ", ".join(f"{name} {parts[name] / whole if whole else 0:.0%}" for name in largest)
    return f"step {_ms(whole)} ms ({shown})"


def _activity(worker: WorkerStatus) -> str:
    return ", ".join(filter(None, (worker.activity, "evaluates" if worker.evaluator else "")))
