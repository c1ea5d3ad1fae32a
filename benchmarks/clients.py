"""Do many workers slow a shard down? Steps per second of 50 light clients in all, beside 4 on the same shard.

Asynchronous, 318 KB, ready-made gradients, no TensorFlow. The clients are threads of as many processes on both sides,
which say the global step once a second; it is measured as training is.
"""

from __future__ import annotations

import argparse
import signal
import threading
from functools import partial
from types import FrameType

import numpy as np
from backup import await_condition
from figures import Comparison, in_turn, report
from processes import processes, run_to_end, script
from push_pull import SIZES, start_shards
from training import observe
from window import Window

from grpc_ps.client.shared.process import prepare_process

WARM_UP = 1.5
"""Seconds of training before the window opens."""


class Clients:
    """So many clients in this process, each a thread that alone writes which global step it has seen."""

    def __init__(self, addresses: str, count: int) -> None:
        self.over = threading.Event()
        self._addresses = addresses
        self._seen = [0] * count
        self._threads = [threading.Thread(target=self._push, args=(number,)) for number in range(count)]

    def train(self, number: int) -> None:
        """Trains until it is over, and says so once a second from when every client has pushed; then they leave."""
        for thread in self._threads:
            thread.start()
        while not self.over.wait(1.0):
            if all(self._seen):
                print(f"worker {number}: global_step {max(self._seen)}", flush=True)
        for thread in self._threads:
            thread.join()

    def _push(self, place: int) -> None:
        from grpc_ps.client import ParameterSpec, PSClient

        shapes = SIZES["318KB"].shapes
        specs = [ParameterSpec(name=f"p{number}", shape=shape, dtype="float32") for number, shape in enumerate(shapes)]
        gradients = {spec.name: np.full(spec.shape, 1e-6, np.float32) for spec in specs}
        with PSClient(self._addresses) as client:
            session = client.join("benchmark", specs, stated={"optimizer": "adagrad", "learning_rate": 0.01})
            if session.opener:
                session.open({spec.name: np.zeros(spec.shape, np.float32) for spec in specs})
            session.begin()
            while not self.over.is_set():
                self._seen[place] = client.push(gradients).global_step


def train(addresses: str, count: int, number: int) -> None:
    """What a process does, until SIGTERM."""
    clients = Clients(addresses, count)

    def end(_: int, __: FrameType | None) -> None:
        clients.over.set()

    signal.signal(signal.SIGTERM, end)
    clients.train(number)


def steps_per_second(addresses: str, count: int, in_processes: int, seconds: float) -> float:
    """Of so many clients in all, which come and go again."""
    from grpc_ps.client import PSClient

    with processes() as group:
        for number in range(in_processes):
            share = count * (number + 1) // in_processes - count * number // in_processes
            group.start(f"clients {number}", [*script("clients.py"), "--train", addresses, str(share), str(number)])
        rate = observe(group, Window(in_processes, warm_up=WARM_UP, seconds=seconds))
    with PSClient(addresses) as client:
        await_condition(client, lambda: not client.status().workers)
    return rate


def measure(arguments: argparse.Namespace) -> Comparison:
    with processes() as group:
        # The steps are what is asked for: that heartbeats of so many come late on a slow machine is another matter.
        flags = ["--max-workers", str(arguments.many)]
        addresses, _ = start_shards(group, 1, *flags)
        rate = partial(steps_per_second, in_processes=arguments.processes, seconds=arguments.seconds)
        sides = [partial(rate, addresses, count) for count in (arguments.many, arguments.few)]
        many, few = in_turn(sides, arguments.repeats)
    name = f"{arguments.many} clients beside {arguments.few}"
    return Comparison(name=name, unit="steps/s", ours=many, other=few)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--many", type=int, default=50)
    parser.add_argument("--few", type=int, default=4)
    parser.add_argument("--processes", type=int, default=4, help="that the clients are spread over")
    parser.add_argument("--seconds", type=float, default=4.0, help="length of a window")
    parser.add_argument("--repeats", type=int, default=5, help="pairs")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--train", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.train:
        addresses, count, number = arguments.train
        train(addresses, int(count), int(number))
        return
    report("clients", [measure(arguments)], as_json=arguments.json)


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
