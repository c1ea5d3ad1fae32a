"""How fast are lookups and updates of a table beside TensorFlow's own parameter-server runtime? One shard, Adagrad.

Rows per second: distinct rows that are looked up and updated, of all workers together. A step looks up ids by Zipf's
law, the loss is the mean squared distance of their rows from 1.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
from figures import Comparison, in_turn, report
from processes import events, processes, program, run_to_end, script
from training import FOREVER, START, free_ports, observe
from window import Window

from grpc_ps.client.processes import Exited, Line
from grpc_ps.models.datasets.zipf import Zipf


@dataclass(frozen=True, kw_only=True)
class Case:
    """What is trained, and for how many seconds; `lazy` is for ours alone."""

    workers: int
    shards: int
    rows: int
    dim: int
    ids: int
    lazy: bool
    warm_up: float
    seconds: float

    def window(self) -> Window:
        """The time in which it is measured."""
        return Window(self.workers, warm_up=self.warm_up, seconds=self.seconds)

    def distinct(self) -> float:
        """Rows of a step, on average."""
        drawn = Zipf(self.rows, self.ids)._drawn
        return float(np.mean([len(np.unique(ids)) for ids in drawn]))

    def sizes(self) -> list[str]:
        """Flags of a peer."""
        return [f"--{name}={getattr(self, name)}" for name in ("rows", "dim", "ids")]


def ours(case: Case) -> float:
    """Our cluster, as `psctl launch` starts it."""
    model = ["--model", "embedding", "--model-arg", f"lazy={int(case.lazy)}"]
    for name in ("rows", "dim", "ids"):
        model += ["--model-arg", f"{name}={getattr(case, name)}"]
    with processes() as group, tempfile.TemporaryDirectory() as logs:
        size = ["--ps", str(case.shards), "--workers", str(case.workers), "--log-dir", logs]
        group.start("psctl", [program("psctl"), "launch", *size, *model, "--steps", str(FOREVER)])
        return observe(group, case.window()) * case.distinct()


def tensorflow(case: Case) -> float:
    """TensorFlow's runtime (tf_sparse.py)."""
    ports = free_ports(case.shards + case.workers)
    cluster = json.dumps({"ps": ports[: case.shards], "worker": ports[case.shards :]})
    command = [*script("tf_sparse.py"), "--cluster", cluster, *case.sizes()]
    with processes() as group:
        for task in range(case.shards):
            group.start(f"ps {task}", [*command, "--job", "ps", "--task", str(task)])
        for task in range(case.workers):
            group.start(f"worker {task}", [*command, "--job", "worker", "--task", str(task)])
        return observe(group, case.window()) * case.distinct()


def outside(path: Path, case: Case, steps: int) -> float:
    """An outside script, which counts for itself: its workers' `rows_per_s` together."""
    flags = ["--ps", str(case.shards), "--workers", str(case.workers), "--steps", str(steps), *case.sizes()]
    rates: list[float] = []
    with processes() as group:
        child = group.start("peer", [sys.executable, str(path), *flags])
        for event in events(group, START + steps):
            if isinstance(event, Line) and event.stdout and event.text.startswith("{"):
                rates.append(float(json.loads(event.text)["rows_per_s"]))
            if isinstance(event, Exited) and event.child is child:
                break
    if len(rates) < case.workers:
        raise SystemExit(f"{path}: {len(rates)} lines with rows_per_s for {case.workers} workers")
    return sum(rates)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--ids", type=int, default=4096, help="looked up in a step")
    parser.add_argument("--lazy", action="store_true", help="ours holds only rows that were updated")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds of training that are not counted")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds that are counted")
    parser.add_argument("--peer", type=Path, help="another script in place of TensorFlow's runtime: see README.md")
    parser.add_argument("--peer-steps", type=int, default=2000, help="what it gets as --steps")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    names = ("workers", "shards", "rows", "dim", "ids", "lazy", "warm_up", "seconds")
    case = Case(**{name: getattr(arguments, name) for name in names})
    peer, steps = arguments.peer, arguments.peer_steps
    other = partial(outside, peer, case, steps) if peer else partial(tensorflow, case)
    mine, others = in_turn([partial(ours, case), other], arguments.repeats)
    name = f"{case.rows:,} x {case.dim}, {case.workers} worker(s)"
    compared = Comparison(name=name, unit="rows/s", ours=mine, other=others)
    report("sparse", [compared], as_json=arguments.json)


if __name__ == "__main__":
    run_to_end(main)
