"""What 100,000 updates on the real digits give, and how long they take: every mode, and TensorFlow's own runtime.

Each run is a whole command, from its start to the accuracy on the test data; runs of different kinds take turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from figures import rounded
from processes import await_line, processes, program, run_to_end
from training import start_tensorflow

HOUR = 3600.0
OURS = {
    "async": "--workers 2 --mode async",
    "sync": "--workers 2 --mode sync",
    "backup": "--workers 2 --backup 1 --mode sync",
}
TENSORFLOW = {"async": (2, ""), "sync": (2, "--sync"), "backup": (3, "--sync --aggregate 2")}
Run = tuple[float, float]
"""Accuracy in percent, and seconds."""


def ours(mode: str, seed: int, arguments: argparse.Namespace) -> Run:
    """A job of ours, as `psctl launch` runs it."""
    job = f"--ps 1 {OURS[mode]} --model mnist --steps {arguments.steps} --seed {seed} --json"
    with processes() as group, tempfile.TemporaryDirectory() as logs:
        command = [program("psctl"), "launch", *job.split(), "--data-dir", str(arguments.data_dir), "--log-dir", logs]
        began = time.monotonic()
        found = await_line(group, group.start("psctl", command), r"^\{.*\}$", HOUR)
        return 100 * float(json.loads(found[0])["metrics"]["accuracy"]), time.monotonic() - began


def tensorflow(mode: str, seed: int, arguments: argparse.Namespace) -> Run:
    """The same of TensorFlow's runtime; in rounds its last worker may never end, so worker 0's accuracy is the end."""
    workers, more = TENSORFLOW[mode]
    flags = f"--until {arguments.steps} --seed {seed} {more}".split()
    with processes(grace=2.0) as group:
        began = time.monotonic()
        first = start_tensorflow(group, 1, workers, [*flags, "--data-dir", str(arguments.data_dir)])
        found = await_line(group, first, r"^accuracy (\S+)", HOUR)
        return 100 * float(found[1]), time.monotonic() - began


KINDS: dict[str, Callable[[int, argparse.Namespace], Run]] = {
    **{mode: partial(ours, mode) for mode in OURS},
    **{f"TensorFlow {mode}": partial(tensorflow, mode) for mode in TENSORFLOW},
}


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-dir", type=Path, required=True, help="MNIST's files")
    parser.add_argument("--steps", type=int, default=100_000, help="updates of a run")
    parser.add_argument("--seeds", type=int, default=3, help="runs of a kind")
    parser.add_argument("--kinds", default=",".join(KINDS), help="which, separated by commas")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    chosen = arguments.kinds.split(",")
    if unknown := set(chosen) - set(KINDS):
        raise SystemExit(f"no such kinds: {', '.join(sorted(unknown))}; there are: {', '.join(KINDS)}")
    found: dict[str, list[Run]] = {kind: [] for kind in chosen}
    for seed in range(arguments.seeds):
        for kind in chosen:
            accuracy, seconds = KINDS[kind](seed, arguments)
            found[kind].append((accuracy, seconds))
            if not arguments.json:
                print(f"{kind:18} seed {seed}: {accuracy:.2f} % after {seconds:.0f} s", flush=True)
    if arguments.json:
        shown = {kind: [[rounded(value) for value in run] for run in runs] for kind, runs in found.items()}
        print(json.dumps({"benchmark": "long_run", "steps": arguments.steps, "runs": shown}))
        return
    for kind, runs in found.items():
        medians = [statistics.median(values) for values in zip(*runs, strict=True)]
        print(f"{kind:18} median {medians[0]:.2f} %, {medians[1]:.0f} s", flush=True)


if __name__ == "__main__":
    run_to_end(main)
