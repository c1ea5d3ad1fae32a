"""Does a backup worker hide a straggler? Rounds per second of 2 fast workers and a slow third one, beside 2 fast ones.

Workers are clients without a model that wait in place of computing: the slow one ten times as long.
"""

from __future__ import annotations

import argparse
import json
import time
from typing import Any

import numpy as np
from figures import Spread, rounded
from processes import processes, program, run_to_end, script
from push_pull import SIZES, start_shards

from grpc_ps.client.processes import ProcessGroup
from grpc_ps.client.shared.process import prepare_process

SLOWER = 10
WARM_UP = 1.0
"""Seconds of training before the window opens."""


def work(addresses: str, seconds_a_step: float, backup: int) -> None:
    """Trains until the job ends."""
    from grpc_ps.client import ParameterSpec, PSClient

    shapes = SIZES["318KB"].shapes
    specs = [ParameterSpec(name=f"p{number}", shape=shape, dtype="float32") for number, shape in enumerate(shapes)]
    gradients = {spec.name: np.full(spec.shape, 1e-6, np.float32) for spec in specs}
    with PSClient(addresses) as client:
        session = client.join("benchmark", specs, stated={"mode": "sync", "workers": 2, "backup": backup})
        if session.opener:
            session.open({spec.name: np.zeros(spec.shape, np.float32) for spec in specs})
        reply = session.begin()
        while not reply.done:
            time.sleep(seconds_a_step)
            reply = client.push(gradients)


def rounds_per_second(step_ms: float, seconds: float, slow: bool) -> float:
    """Of a cluster of its own: one shard, two fast workers, and the slow one if asked for."""
    from grpc_ps.client import PSClient

    with processes() as group:
        addresses, _ = start_shards(group, 1)
        count = 2 + slow
        for number in range(count):
            each = step_ms * (SLOWER if number == 2 else 1)
            _start(group, number, addresses, each, backup=int(slow))
        with PSClient(addresses) as client:
            await_condition(client, lambda: _training(client, count))
            time.sleep(WARM_UP)
            begin, first = time.perf_counter(), client.status().global_step
            time.sleep(seconds)
            last, end = client.status().global_step, time.perf_counter()
            client.stop()
    return (last - first) / (end - begin)


def _start(group: ProcessGroup, number: int, addresses: str, step_ms: float, backup: int) -> None:
    flags = ["--work", addresses, "--step-ms", str(step_ms), "--backup", str(backup)]
    group.start(f"worker {number}", [*script("backup.py"), *flags])


def _training(client: Any, count: int) -> bool:
    status = client.status()
    return status.global_step > 0 and len(status.workers) == count


def await_condition(client: Any, condition: Any, seconds: float = 60.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            raise SystemExit(f"benchmark: workers have not trained within {seconds:g} s")
        time.sleep(0.1)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--step-ms", type=float, default=20.0, help="what a fast worker takes to compute a step")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a window")
    parser.add_argument("--repeats", type=int, default=5, help="pairs")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--work", help=argparse.SUPPRESS)
    parser.add_argument("--backup", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    if arguments.work:
        work(arguments.work, arguments.step_ms / 1e3, arguments.backup)
        return
    program("psserver")
    pairs = []
    for number in range(arguments.repeats):
        order = (True, False) if number % 2 else (False, True)
        rates = {slow: rounds_per_second(arguments.step_ms, arguments.seconds, slow) for slow in order}
        pairs.append((rates[True], rates[False]))
        if not arguments.json:
            ratio = rates[True] / rates[False]
            print(
                f"with the slow one {rates[True]:7.1f}  without {rates[False]:7.1f} rounds/s  {ratio:.2f}", flush=True
            )
    ratio = Spread.of([ours / theirs for ours, theirs in pairs])
    if arguments.json:
        shown = [{"with_slow": rounded(ours), "two_fast": rounded(theirs)} for ours, theirs in pairs]
        print(json.dumps({"benchmark": "backup", "pairs": shown, "ratio": ratio.record()}))
    else:
        print(f"ratio {ratio.range()}")


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
