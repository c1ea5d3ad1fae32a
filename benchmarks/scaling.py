"""Does a second worker double the pace? Images per second of CIFAR-10's network: two workers beside one, in rounds.

The third seed's experiment: each worker has one core, and the parameter server may use any. Ours and TensorFlow's own
runtime in turn; the ratio is of two workers to one, run by run. The target is for
ours. A machine with fewer than two cores can show nothing.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from functools import partial

from figures import Comparison, in_turn, report
from processes import await_line, processes, program, run_to_end, script
from training import FOREVER, START, free_ports, observe
from window import Window

from grpc_ps.client.shared.cores import allowed_cores


def ours(workers: int, arguments: argparse.Namespace) -> float:
    """Images per second of `psctl launch --pin-cores`."""
    window = Window(workers, warm_up=arguments.warm_up, seconds=arguments.seconds)
    job = ["--mode", "sync", "--batch-size", str(arguments.batch), "--steps", str(FOREVER)]
    data = ["--data-dir", arguments.data_dir] if arguments.data_dir else ["--data", "synthetic"]
    with processes() as group, tempfile.TemporaryDirectory() as logs:
        size = ["--ps", "1", "--workers", str(workers), "--pin-cores", "--log-dir", logs]
        group.start("psctl", [program("psctl"), "launch", *size, "--model", "cifar10", *data, *job])
        return observe(group, window) * workers * arguments.batch


def tensorflow(workers: int, arguments: argparse.Namespace) -> float:
    """Images per second of TensorFlow's runtime: a ps, a tower on each worker, a client; one is a process alone."""
    timing = ["--batch", arguments.batch, "--warm-up", arguments.warm_up, "--seconds", arguments.seconds]
    command = [*script("tf_towers.py"), *map(str, timing)]
    with processes() as group:
        if workers > 1:
            ports = free_ports(workers + 1)
            command += ["--cluster", json.dumps({"ps": ports[:1], "worker": ports[1:]})]
            for job, task in (("ps", 0), *(("worker", task) for task in range(workers))):
                child = group.start(f"{job} {task}", [*command, "--job", job, "--task", str(task)])
                await_line(group, child, "READY", START)
        client = group.start("client", command)
        found = await_line(group, client, r"^\{.*\}$", START + arguments.warm_up + arguments.seconds)
    return float(json.loads(found[0])["images_per_s"])


def compare(arguments: argparse.Namespace) -> list[Comparison]:
    runs = {"ours, two workers / one": ours} | ({} if arguments.ours_only else {"TensorFlow, two / alone": tensorflow})
    sides = [partial(run, workers, arguments) for run in runs.values() for workers in (2, 1)]
    found = in_turn(sides, arguments.repeats)
    pairs = zip(runs, found[::2], found[1::2], strict=True)
    return [Comparison(name=name, unit="images/s", ours=two, other=one) for name, two, one in pairs]


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs of each side")
    parser.add_argument("--ours-only", action="store_true", help="without TensorFlow's runtime")
    parser.add_argument("--batch", type=int, default=128, help="images of each worker")
    parser.add_argument("--data-dir", help="folder with CIFAR-10's files, for ours; default: random images")
    parser.add_argument("--warm-up", type=float, default=3.0, help="seconds of training that are not counted")
    parser.add_argument("--seconds", type=float, default=10.0, help="seconds that are counted")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if len(allowed_cores()) < 2:
        raise SystemExit("benchmark: two cores are needed to show what a second worker is worth")
    report("scaling", compare(arguments), as_json=arguments.json)


if __name__ == "__main__":
    run_to_end(main)
