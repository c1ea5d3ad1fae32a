"""How fast is training beside TensorFlow's own parameter-server runtime? One shard, asynchronous, mnist, Adagrad.

Ours and the peer run in turn. Both are measured from outside in the same way: by when their workers' progress lines
say which global step.
"""

from __future__ import annotations

import argparse
import json
import re
import socket
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from figures import Spread, rounded
from processes import await_line, events, processes, program, run_to_end, script
from window import Window

from grpc_ps.client.processes import Exited, Line, ProcessGroup

# Seconds for a cluster to start and train its warm-up, beside the window.
START = 240.0
# A step that no run reaches: the window ends it.
FOREVER = 10**12
PROGRESS = re.compile(r"worker (\d+): .*?global_step (\d+)")


def observe(group: ProcessGroup, arguments: argparse.Namespace, workers: int) -> float:
    """Watches a cluster train until the window has closed."""
    window = Window(workers, warm_up=arguments.warm_up, seconds=arguments.seconds)
    for event in events(group, START + arguments.seconds):
        if isinstance(event, Line) and (found := PROGRESS.search(event.text)):
            rate = window.add(time.monotonic(), int(found[1]), int(found[2]))
            if rate is not None:
                return rate
    raise AssertionError("`events` ends by raising")


def run_ours(arguments: argparse.Namespace, workers: int) -> float:
    """Our cluster, as `psctl launch` starts it."""
    model = [
        "--model",
        "mnist",
        "--model-arg",
        f"hidden={arguments.hidden}",
        "--model-arg",
        f"layers={arguments.layers}",
    ]
    data = ["--data-dir", str(arguments.data_dir)] if arguments.data_dir else ["--data", "synthetic"]
    job = ["--batch-size", str(arguments.batch), "--steps", str(FOREVER), *threads(arguments)]
    with processes() as group, tempfile.TemporaryDirectory() as logs:
        flags = ["--ps", "1", "--workers", str(workers), *model, *data, *job, "--log-dir", logs]
        group.start("psctl", [program("psctl"), "launch", *flags])
        return observe(group, arguments, workers)


def run_tensorflow(arguments: argparse.Namespace, workers: int) -> float:
    """TensorFlow's: a ps and the workers, which begin once the first has initialized the model."""
    ports = free_ports(1 + workers)
    cluster = json.dumps({"ps": ports[:1], "worker": ports[1:]})
    command = [*script("tf_runtime.py"), "--cluster", cluster, *work(arguments), *threads(arguments)]
    with processes() as group:
        group.start("ps", [*command, "--job", "ps"])
        first = group.start("worker 0", [*command, "--job", "worker"])
        await_line(group, first, PROGRESS.pattern, START)
        for task in range(1, workers):
            group.start(f"worker {task}", [*command, "--job", "worker", "--task", str(task)])
        return observe(group, arguments, workers)


def run_script(arguments: argparse.Namespace, workers: int) -> float:
    """An outside script, which counts for itself: the sum of its workers' rates."""
    flags = ["--workers", str(workers), "--steps", str(arguments.peer_steps)]
    if (arguments.layers, arguments.hidden, arguments.batch) == (1, 100, 100):
        flags += ["--data-dir", str(arguments.data_dir)] if arguments.data_dir else []
    else:
        flags += work(arguments)
    rates: list[float] = []
    with processes() as group:
        child = group.start("peer", [sys.executable, str(arguments.peer), *flags])
        for event in events(group, START + arguments.peer_steps):
            if isinstance(event, Line) and event.stdout and event.text.startswith("{"):
                rates += [float(json.loads(event.text)["steps_per_s"])]
            if isinstance(event, Exited) and event.child is child:
                break
    if len(rates) != workers:
        raise SystemExit(f"{arguments.peer}: {len(rates)} lines with steps_per_s for {workers} workers")
    return sum(rates)


def work(arguments: argparse.Namespace) -> list[str]:
    flags = [f"--{name}={getattr(arguments, name)}" for name in ("layers", "hidden", "batch")]
    return flags + ([f"--data-dir={arguments.data_dir}"] if arguments.data_dir else [])


def threads(arguments: argparse.Namespace) -> list[str]:
    return [f"--threads={arguments.threads}"] if arguments.threads else []


def free_ports(count: int) -> list[str]:
    """Addresses that nobody listens on: TensorFlow's tasks must know each other's before they start."""
    sockets = [socket.socket() for _ in range(count)]
    for each in sockets:
        each.bind(("127.0.0.1", 0))
    addresses = [f"127.0.0.1:{each.getsockname()[1]}" for each in sockets]
    for each in sockets:
        each.close()
    return addresses


def pairs(arguments: argparse.Namespace, workers: int) -> Iterator[tuple[float, float]]:
    """Rates of ours and the peer, run in turn; who goes first alternates."""
    peer: Callable[[argparse.Namespace, int], float] = run_script if arguments.peer else run_tensorflow
    for repeat in range(arguments.repeats):
        if repeat % 2:
            other = peer(arguments, workers)
            yield run_ours(arguments, workers), other
        else:
            yield run_ours(arguments, workers), peer(arguments, workers)


def compare(arguments: argparse.Namespace, workers: int) -> dict[str, Any]:
    measured = []
    for ours, peer in pairs(arguments, workers):
        measured.append((ours, peer))
        if not arguments.json:
            print(
                f"{workers} worker(s): ours {ours:8.1f}, peer {peer:8.1f} steps/s, ratio {ours / peer:.2f}", flush=True
            )
    return {
        "workers": workers,
        "ours_steps_per_s": [rounded(ours) for ours, _ in measured],
        "peer_steps_per_s": [rounded(peer) for _, peer in measured],
        "ratio": Spread.of([ours / peer for ours, peer in measured]).record(),
    }


def summary(result: Mapping[str, Any]) -> str:
    ours, peer = (Spread.of(result[f"{side}_steps_per_s"]).range() for side in ("ours", "peer"))
    ratio = Spread(**result["ratio"]).range()
    return f"{result['workers']} worker(s), median (range): ours {ours}, peer {peer} steps/s, ratio {ratio}"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", default="1,2", type=lambda text: [int(each) for each in text.split(",")])
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs for each number of workers")
    parser.add_argument("--hidden", type=int, default=100)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--data-dir", type=Path, help="folder with MNIST's files; default: random images")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds of training that are not counted")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds that are counted")
    parser.add_argument("--threads", type=int, help="threads of each worker; default: as each side chooses")
    parser.add_argument("--peer", type=Path, help="another script in place of TensorFlow's runtime: see README.md")
    parser.add_argument("--peer-steps", type=int, default=2000, help="what it gets as --steps")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    results = []
    for workers in arguments.workers:
        results.append(compare(arguments, workers))
        if not arguments.json:
            print(summary(results[-1]), flush=True)
    if arguments.json:
        case = {name: getattr(arguments, name) for name in ("hidden", "layers", "batch")}
        peer = str(arguments.peer or "tf_runtime.py")
        print(json.dumps({"benchmark": "peers", "peer": peer, **case, "results": results}))


if __name__ == "__main__":
    run_to_end(main)
