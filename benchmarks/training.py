"""Clusters that train mnist's network, ours and TensorFlow's own, measured from outside in the same way.

A worker says the global step about once a second; `Window` makes a rate of when the lines come.
"""

from __future__ import annotations

import json
import re
import socket
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from processes import await_line, events, processes, program, script
from window import Window

from grpc_ps.client.processes import Child, Exited, Line, ProcessGroup

# Seconds for a cluster to start and train its warm-up, beside the window.
START = 240.0
# A step that no run reaches: the window ends it.
FOREVER = 10**12
PROGRESS = r"worker (\d+): .*?global_step (\d+)"


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained, and how long it is watched.

    Attributes:
        sync: rounds of all workers; else asynchronous.
        data_dir: with MNIST's files; random images without.
        threads: of each worker's TensorFlow; 0 for what each side chooses.
        warm_up, seconds: of training that are not counted, and that are.
    """

    workers: int = 2
    shards: int = 1
    sync: bool = False
    layers: int = 1
    hidden: int = 100
    batch: int = 100
    data_dir: Path | None = None
    threads: int = 0
    warm_up: float = 2.0
    seconds: float = 8.0

    @property
    def nbytes(self) -> int:
        """Bytes of the parameters."""
        units = [784, *[self.hidden] * self.layers, 10]
        return 4 * sum((inputs + 1) * outputs for inputs, outputs in pairwise(units))

    def window(self) -> Window:
        """The time in which it is measured."""
        return Window(self.workers, warm_up=self.warm_up, seconds=self.seconds)

    def network(self) -> list[str]:
        """Flags of a peer, but for the data."""
        return [f"--{name}={getattr(self, name)}" for name in ("layers", "hidden", "batch")]


def observe(group: ProcessGroup, window: Window) -> float:
    """Watches a cluster train until the window has closed: global steps per second of all workers together."""
    for event in events(group, START + window.seconds):
        if isinstance(event, Line) and (found := re.search(PROGRESS, event.text)):
            rate = window.add(time.monotonic(), int(found[1]), int(found[2]))
            if rate is not None:
                return rate
    raise AssertionError("`events` ends by raising")


def ours(case: Case, flags: Sequence[str] = ()) -> float:
    """Our cluster, as `psctl launch` starts it, with further flags of that command."""
    model = ["--model", "mnist", "--model-arg", f"hidden={case.hidden}", "--model-arg", f"layers={case.layers}"]
    data = ["--data-dir", str(case.data_dir)] if case.data_dir else ["--data", "synthetic"]
    job = ["--batch-size", str(case.batch), "--steps", str(FOREVER), "--mode", "sync" if case.sync else "async"]
    threads = [f"--threads={case.threads}"] if case.threads else []
    with processes() as group, tempfile.TemporaryDirectory() as logs:
        size = ["--ps", str(case.shards), "--workers", str(case.workers), "--log-dir", logs]
        group.start("psctl", [program("psctl"), "launch", *size, *model, *data, *job, *threads, *flags])
        return observe(group, case.window())


def tensorflow(case: Case) -> float:
    """TensorFlow's runtime: parameter servers and workers (tf_runtime.py)."""
    flags = [*case.network(), f"--threads={case.threads}", *(["--sync"] if case.sync else [])]
    flags += [f"--data-dir={case.data_dir}"] if case.data_dir else []
    with processes() as group:
        start_tensorflow(group, case.shards, case.workers, flags)
        return observe(group, case.window())


def start_tensorflow(group: ProcessGroup, shards: int, workers: int, flags: Sequence[str]) -> Child:
    """Starts its parameter servers and workers with further flags of tf_runtime.py; returns worker 0."""
    ports = free_ports(shards + workers)
    cluster = json.dumps({"ps": ports[:shards], "worker": ports[shards:]})
    command = [*script("tf_runtime.py"), "--cluster", cluster, *flags]
    with tempfile.TemporaryDirectory() as folder:
        for task in range(shards):
            group.start(f"ps {task}", [*command, "--job", "ps", "--task", str(task)])
        first = group.start("worker 0", [*command, "--job", "worker"])
        go = Path(folder, "go")
        for task in range(1, workers):
            group.start(f"worker {task}", [*command, "--job", "worker", "--task", str(task), "--go", str(go)])
        await_line(group, first, "INITIALIZED", START)
        go.touch()
        # The others, in any order, have seen it before it goes.
        waiting = set(group.children[shards + 1 :])
        for event in events(group, START) if waiting else ():
            if isinstance(event, Line) and "INITIALIZED" in event.text:
                waiting.discard(event.child)
            if not waiting:
                break
    return first


def outside(path: Path, case: Case, steps: int) -> float:
    """An outside script, which counts for itself: its workers' rates together, or in sync the mean of their rounds'.

    In sync the last worker may never end, since nobody is left to make a round with: one that has counted is enough.
    """
    flags = ["--workers", str(case.workers), "--steps", str(steps), *(["--sync"] if case.sync else [])]
    if (case.layers, case.hidden, case.batch) != (1, 100, 100):
        flags += case.network()
    flags += ["--data-dir", str(case.data_dir)] if case.data_dir else []
    rates: list[float] = []
    with processes() as group:
        child = group.start("peer", [sys.executable, str(path), *flags])
        for event in events(group, START + steps):
            if isinstance(event, Line) and event.stdout and event.text.startswith("{"):
                rates.append(float(json.loads(event.text)["steps_per_s"]))
            if isinstance(event, Exited) and event.child is child:
                break
    if not rates or (len(rates) < case.workers and not case.sync):
        raise SystemExit(f"{path}: {len(rates)} lines with steps_per_s for {case.workers} workers")
    return sum(rates) / (len(rates) if case.sync else 1)


def free_ports(count: int) -> list[str]:
    """Addresses that nobody listens on: TensorFlow's tasks must know each other's before they start."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses
