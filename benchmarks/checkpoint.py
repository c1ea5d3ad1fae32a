"""What does saving cost? Steps per second with a checkpoint every so many steps, beside the same without any.

One shard and real workers on mnist's network with 3 x 2048 hidden units: 10 million parameters, 40 MB of values, and
as much again for each slot of the optimizer. A window is as long as some checkpoints take to come and go.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

from backup import await_condition
from figures import Spread, rounded
from processes import processes, program, run_to_end
from push_pull import start_shards

from grpc_ps.client.shared.process import prepare_process

WARM_UP = 3.0
"""Seconds of training before the window opens."""
NETWORK = ["--model", "mnist", "--data", "synthetic", "--model-arg", "hidden=2048", "--model-arg", "layers=3"]


def steps_per_second(arguments: argparse.Namespace, folder: Path | None) -> tuple[float, int]:
    """Of a cluster of its own, and how many checkpoints it committed meanwhile; without a folder it saves nothing."""
    from grpc_ps.client import PSClient

    flags = ["--checkpoint-dir", str(folder), "--checkpoint-steps", str(arguments.every)] if folder else []
    with processes() as group:
        addresses, _ = start_shards(group, 1, *flags)
        train = [program("worker"), "--ps", addresses, *NETWORK, "--batch-size", "10", "--steps", "1000000"]
        for number in range(arguments.workers):
            options = ["--threads", "1", "--optimizer", arguments.optimizer, "--learning-rate", "0.0001"]
            group.start(f"worker {number}", [*train, *options])
        with PSClient(addresses) as client:
            await_condition(client, lambda: client.status().global_step > 0)
            await_condition(client, lambda: len(client.status().workers) == arguments.workers)
            time.sleep(WARM_UP)
            begin, first = time.perf_counter(), client.status()
            time.sleep(arguments.seconds)
            last, end = client.status(), time.perf_counter()
        saved = 0
        if first.checkpoint and last.checkpoint:
            saved = ((last.checkpoint.global_step or 0) - (first.checkpoint.global_step or 0)) // arguments.every
    return (last.global_step - first.global_step) / (end - begin), saved


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--every", type=int, default=20, help="steps from one checkpoint to the next")
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--optimizer", default="sgd", help="sgd has no slots: 40 MB; adagrad: 80 MB; adam: 120 MB")
    parser.add_argument("--seconds", type=float, default=10.0, help="length of a window")
    parser.add_argument("--repeats", type=int, default=5, help="pairs")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    program("psserver")
    pairs = []
    for number in range(arguments.repeats):
        rates: dict[bool, float] = {}
        saved = 0
        for saving in (True, False) if number % 2 else (False, True):
            with tempfile.TemporaryDirectory(prefix="grpc-ps-benchmark-") as folder:
                rates[saving], count = steps_per_second(arguments, Path(folder) if saving else None)
            saved += count
        pairs.append((rates[True], rates[False], saved))
        if not arguments.json:
            ratio = rates[True] / rates[False]
            print(
                f"saving {rates[True]:6.2f}  not {rates[False]:6.2f} steps/s  {ratio:.3f}  {saved} checkpoints",
                flush=True,
            )
    ratio = Spread.of([ours / theirs for ours, theirs, _ in pairs])
    if arguments.json:
        shown = [{"saving": rounded(a), "not_saving": rounded(b), "checkpoints": count} for a, b, count in pairs]
        print(json.dumps({"benchmark": "checkpoint", "pairs": shown, "ratio": ratio.record()}))
    else:
        print(f"ratio {ratio.median:.3f} ({ratio.min:.3f} to {ratio.max:.3f})")


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
