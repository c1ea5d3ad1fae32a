"""psctl watch: what a cluster does, again and again until it ends."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import deque
from collections.abc import Iterable
from pathlib import Path
from types import FrameType

import click
from rich.live import Live

from grpc_ps.client.client import ClusterStatus, PSClient
from grpc_ps.client.commands import tables
from grpc_ps.client.commands.target import addresses, target_options
from grpc_ps.client.shared.flags import Command, Real

# Milliseconds over which the pace is taken: one reading alone says little of a job of few steps a second.
_PACE_MS = 10_000


@click.command("watch", cls=Command)
@target_options
@click.option("--interval", type=Real(above=0), default=1.0, show_default=True, help="Seconds between two readings.")
@click.option("--json", "as_json", is_flag=True, help="One line of JSON a reading, for programs.")
def watch(ps: str | None, log_dir: Path | None, interval: float, as_json: bool) -> None:
    """Shows a cluster until it ends.

    On a terminal that is a live table, elsewhere one line a reading. Ends with exit code 0 when the job stops or its
    lead goes away. Ctrl-C ends the watching, not the job.
    """
    interrupt = _Interrupt()
    with PSClient(addresses(ps, log_dir)) as client:
        readings = client.watch(interval, stop=lambda: interrupt.came)
        if sys.stdout.isatty() and not as_json:
            _show_table(readings)
        else:
            _print_lines(readings, as_json=as_json)
    if interrupt.came:
        raise KeyboardInterrupt


class _Interrupt:
    """Ctrl-C as a flag: an exception in the middle of gRPC's own code may leave a lock held for good.

    The second one ends the process at once.
    """

    def __init__(self) -> None:
        self.came = False
        signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Pace:
    """How fast the global step rises, over the last ten seconds of readings by the lead's clock."""

    def __init__(self) -> None:
        self._readings: deque[ClusterStatus] = deque()

    def __call__(self, now: ClusterStatus) -> float | None:
        """Takes the next reading; returns steps per second, None where there is nothing to compare it with."""
        if self._readings and _life(self._readings[-1]) != _life(now):
            self._readings.clear()
        self._readings.append(now)
        while len(self._readings) > 2 and now.uptime_ms - self._readings[0].uptime_ms > _PACE_MS:
            self._readings.popleft()
        first = self._readings[0]
        elapsed = now.uptime_ms - first.uptime_ms
        return (now.global_step - first.global_step) * 1000 / elapsed if elapsed > 0 else None


def _life(now: ClusterStatus) -> tuple[int, int]:
    return now.run, now.generation


def _show_table(readings: Iterable[ClusterStatus]) -> None:
    pace = Pace()
    # Its own thread would only repeat what has not changed.
    with Live(console=tables.console(), auto_refresh=False) as live:
        for now in readings:
            live.update(tables.picture(now, steps_per_second=pace(now)), refresh=True)


def _print_lines(readings: Iterable[ClusterStatus], *, as_json: bool) -> None:
    pace = Pace()
    for now in readings:
        rate = pace(now)
        line = json.dumps({**now.to_dict(), "steps_per_second": rate}) if as_json else line_of(now, rate)
        try:
            print(line, flush=True)
        except BrokenPipeError:
            # Whoever read is gone (`| head`). What Python still holds for stdout must have somewhere to go.
            _to_nowhere(sys.stdout.fileno())
            return


def _to_nowhere(descriptor: int) -> None:
    nowhere = os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, descriptor)
    os.close(nowhere)


def line_of(now: ClusterStatus, steps_per_second: float | None) -> str:
    """Returns a reading in one line: the job, its pace, and the workers in short."""
    parts = [tables.headline(now), tables.pace(steps_per_second), tables.details(now), tables.evaluation(now)]
    losses = [worker.loss for worker in now.workers if worker.loss is not None]
    parts.append(f"workers {len(now.workers)}")
    parts += [f"loss {sum(losses) / len(losses):.4g}"] if losses else []
    late = sum(worker.late for worker in now.workers)
    parts += [f"late {late}"] if late else []
    return ", ".join(filter(None, parts))
