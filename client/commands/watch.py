"""psctl watch: what a cluster does, again and again until it ends."""

from __future__ import annotations

import json
import os
import sys
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

import click
from rich.live import Live

from grpc_ps.client.client import ClusterStatus
from grpc_ps.client.cluster_file import ClusterFile, runs
from grpc_ps.client.commands import tables
from grpc_ps.client.commands.follow import CtrlC, Follower, check_ended, ending
from grpc_ps.client.commands.target import connect, launch_folder, target_options
from grpc_ps.client.shared.errors import JobFailed, PeerLost, PeerUnreachable
from grpc_ps.client.shared.flags import MAX_U32, Command, Real, Whole
from grpc_ps.client.time_shares import shares

# Milliseconds over which the pace is taken: one reading alone says little of a job of few steps a second.
_PACE_MS = 10_000


@click.command("watch", cls=Command)
@target_options
@click.option("--interval", type=Real(above=0), default=1.0, show_default=True, help="Seconds between two readings.")
@click.option("--job", "number", type=Whole(1, MAX_U32), help="Follow that job of the queue, as `psctl submit` does.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON a reading, for programs.")
def watch(ps: str | None, log_dir: Path | None, interval: float, number: int | None, as_json: bool) -> None:
    """Shows a cluster until it ends, or, of one that stands, until the present job does.

    On a terminal that is a live table, elsewhere one line a reading. Ends with the job's exit code when the job stops.
    A lead that goes away is waited for as long as the `psctl launch` runs that may start it again; with --ps that is
    the end, and the exit code 0. Ctrl-C ends the watching, not the job.
    """
    interrupt = CtrlC()
    with connect(ps, log_dir) as client:
        folder = launch_folder(ps, log_dir)
        follower = Follower(client, interrupt, interval, may_return=lambda: runs(folder))
        if number is not None:
            follower.follow(number, as_json=as_json)
            return
        readings = one_job(client.watch(interval, stop=lambda: interrupt.came, may_return=lambda: runs(folder)))
        table = sys.stdout.isatty() and not as_json
        last = _show_table(readings) if table else _print_lines(readings, as_json=as_json)
        if last is not None and last.job_number and not interrupt.came:
            # A lead that is gone has said in its last reading how the job ended.
            with suppress(PeerUnreachable, PeerLost):
                if (ended := follower.end(last.job_number)) is not None:
                    check_ended(ended)
                    if not as_json:
                        # The last evaluation came after the last reading.
                        print(ending(ended), flush=True)
                    return
    if interrupt.came:
        raise KeyboardInterrupt
    if last is not None:
        _check_end(last, folder)


def one_job(readings: Iterable[ClusterStatus]) -> Iterator[ClusterStatus]:
    """Yields readings until they are of another job than the first one that there was."""
    run = 0
    for now in readings:
        if run and now.run != run:
            return
        if now.phase != "empty":
            run = now.run
        yield now


def _check_end(last: ClusterStatus, folder: Path | None) -> None:
    """Says that the job has failed: by its last reading, or by the launch where the lead went before it could tell.

    Raises:
        JobFailed: it has; carries its exit code.
    """
    if last.phase == "stopped" and last.exit_code:
        raise JobFailed(f"the job has failed with exit code {last.exit_code}: {last.reason}", exit_code=last.exit_code)
    code = ClusterFile.read(folder).exit_code if folder and last.phase != "stopped" else 0
    if code:
        raise JobFailed(f"the cluster of {folder} has ended with exit code {code}; its logs are there", exit_code=code)


class Pace:
    """How fast the global step rises, over the last ten seconds of readings by the lead's clock.

    Attributes:
        since: the reading that these ten seconds begin with, None as long as there is only one.
    """

    def __init__(self) -> None:
        self._readings: deque[ClusterStatus] = deque()
        self.since: ClusterStatus | None = None

    def __call__(self, now: ClusterStatus) -> float | None:
        """Takes the next reading; returns steps per second, None where there is nothing to compare it with."""
        if self._readings and _life(self._readings[-1]) != _life(now):
            self._readings.clear()
        self._readings.append(now)
        while len(self._readings) > 2 and now.uptime_ms - self._readings[0].uptime_ms > _PACE_MS:
            self._readings.popleft()
        first = self._readings[0]
        self.since = first if len(self._readings) > 1 else None
        elapsed = now.uptime_ms - first.uptime_ms
        return (now.global_step - first.global_step) * 1000 / elapsed if elapsed > 0 else None


def _life(now: ClusterStatus) -> tuple[int, int]:
    return now.run, now.generation


def _show_table(readings: Iterable[ClusterStatus]) -> ClusterStatus | None:
    """Shows all readings; returns the last one."""
    pace, now = Pace(), None
    # Its own thread would only repeat what has not changed.
    with Live(console=tables.console(), auto_refresh=False) as live:
        for now in readings:
            rate = pace(now)
            live.update(tables.picture(now, steps_per_second=rate, since=pace.since), refresh=True)
    return now


def _print_lines(readings: Iterable[ClusterStatus], *, as_json: bool) -> ClusterStatus | None:
    """Prints all readings; returns the last one, or None when nobody reads any more."""
    pace, now = Pace(), None
    for now in readings:
        rate = pace(now)
        line = json.dumps({**now.to_dict(), "steps_per_second": rate}) if as_json else line_of(now, rate, pace.since)
        try:
            print(line, flush=True)
        except BrokenPipeError:
            # Whoever read is gone (`| head`). What Python still holds for stdout must have somewhere to go.
            _to_nowhere(sys.stdout.fileno())
            return None
    return now


def _to_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def line_of(now: ClusterStatus, steps_per_second: float | None, since: ClusterStatus | None = None) -> str:
    """Returns a reading in one line: the job, its pace, and the workers in short, their times since that reading."""
    parts = [tables.headline(now), tables.pace(steps_per_second), tables.details(now), tables.evaluation(now)]
    parts.append(f"workers {len(now.workers)}")
    parts.append(tables.loss(now))
    parts.append(tables.step_time(shares(now, since)))
    late = sum(worker.late for worker in now.workers)
    parts += [f"late {late}"] if late else []
    if now.checkpoint is not None and now.checkpoint.global_step is not None:
        parts.append(f"checkpoint step {now.checkpoint.global_step}")
    parts += tables.checkpoint_notes(now)
    return ", ".join(filter(None, parts))
