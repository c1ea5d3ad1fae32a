"""How near is a push and pull to what the machine can do? Beside TCP for the same bytes plus the kernel alone.

The bound is the time of the bytes over one plain TCP connection of loopback, to a process and then back, plus that of
TensorFlow's Adagrad kernel on as many elements in that process; tcp_and_kernel.py is it.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from statistics import median

from figures import Comparison, report
from processes import await_line, processes, run_to_end, script
from push_pull import SIZES, milliseconds, push_pull
from tcp_and_kernel import TcpAndKernel

from grpc_ps.client.shared.process import prepare_process

WARM_UP = 3


@contextmanager
def tcp_and_kernel(nbytes: int, threads: int) -> Iterator[TcpAndKernel]:
    """A process of its own, which ends with the block."""
    with processes() as group:
        command = [*script("tcp_and_kernel.py"), "--bytes", str(nbytes), "--threads", str(threads)]
        child = group.start("floor", command)
        floor = TcpAndKernel(await_line(group, child, r"READY address=(\S+)")[1], nbytes)
        try:
            yield floor
        finally:
            floor.close()


def turn(floor: TcpAndKernel, steps: int) -> tuple[float, float]:
    """Milliseconds of the bytes and of the kernel, the medians of so many of each."""
    tcp = [milliseconds(floor.echo) for _ in range(WARM_UP + steps)]
    kernel = [floor.apply() for _ in range(WARM_UP + steps)]
    return median(tcp[WARM_UP:]), median(kernel[WARM_UP:])


def measure(arguments: argparse.Namespace) -> Comparison:
    size = SIZES[arguments.size]
    turns = []
    with push_pull(size, 1) as ours, tcp_and_kernel(size.nbytes, arguments.threads) as floor:
        for _ in range(arguments.repeats):
            ours.turn(arguments.steps)
            turns.append(turn(floor, arguments.steps))
    tcp, kernel = (median(times) for times in zip(*turns, strict=True))
    name = f"{arguments.size}; TCP {tcp:.3g} ms, kernel {kernel:.3g} ms"
    return Comparison(name=name, unit="ms", ours=ours.medians, other=[sum(times) for times in turns])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--size", choices=sorted(SIZES), default="40MB")
    parser.add_argument("--steps", type=int, default=20, help="steps of a turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side")
    parser.add_argument("--threads", type=int, default=1, help="threads of the kernel; the shard's are 1")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    report("bound", [measure(arguments)], as_json=arguments.json)


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
