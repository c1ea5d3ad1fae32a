"""What does one push and pull cost? Real shards, a client without TensorFlow, ready-made gradients, Adagrad.

In turn with it, for scale: the same number of bytes each way over a plain gRPC stream (raw_stream.py).
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np
import psutil
from figures import Spread, rounded
from processes import await_line, processes, program, run_to_end, script
from raw_stream import RawStream

from grpc_ps.client.processes import ProcessGroup
from grpc_ps.client.shared.process import prepare_process

if TYPE_CHECKING:  # It imports gRPC, which the process has to be prepared for.
    from grpc_ps.client import Security

# Each side's steps are cut into so many turns; a turn begins with steps that are not counted.
TURNS = 5
WARM_UP = 5


@dataclass(frozen=True, kw_only=True)
class Size:
    """What is pushed, all float32, and how often by default."""

    shapes: Sequence[tuple[int, ...]]
    steps: int

    @property
    def nbytes(self) -> int:
        return sum(4 * int(np.prod(shape)) for shape in self.shapes)


SIZES: Mapping[str, Size] = MappingProxyType(
    {
        "318KB": Size(shapes=[(784, 100), (100,), (100, 10), (10,)], steps=1000),
        "4MB": Size(shapes=[(1 << 20,)], steps=300),
        "40MB": Size(shapes=[(1 << 20,)] * 10, steps=100),
    }
)


@dataclass
class Side:
    """One of the two that are compared, and what was measured of it."""

    exchange: Callable[[], None]
    servers: Sequence[psutil.Process]
    # Wall milliseconds of each step, turn by turn; CPU seconds of the client and of the servers in all turns.
    turns: list[list[float]] = field(default_factory=list)
    client_cpu: float = 0.0
    server_cpu: float = 0.0

    def turn(self, steps: int, warm_up: int = WARM_UP) -> None:
        for _ in range(warm_up):
            self.exchange()
        client, server = _cpu_seconds([psutil.Process()]), _cpu_seconds(self.servers)
        self.turns.append([milliseconds(self.exchange) for _ in range(steps)])
        self.client_cpu += _cpu_seconds([psutil.Process()]) - client
        self.server_cpu += _cpu_seconds(self.servers) - server

    @property
    def medians(self) -> list[float]:
        """Wall milliseconds of a step, turn by turn."""
        return [float(np.median(turn)) for turn in self.turns]

    def record(self) -> dict[str, Any]:
        walls = [wall for turn in self.turns for wall in turn]
        cpu = {"client": self.client_cpu, "server": self.server_cpu}
        return {
            "wall_ms": Spread.of(walls).record(),
            "cpu_ms": {end: rounded(seconds * 1e3 / len(walls)) for end, seconds in cpu.items()},
        }


def _cpu_seconds(measured: Sequence[psutil.Process]) -> float:
    times = [process.cpu_times() for process in measured]
    return float(sum(each.user + each.system for each in times))


def milliseconds(action: Callable[[], None]) -> float:
    begin = time.perf_counter()
    action()
    return (time.perf_counter() - begin) * 1e3


def ratios(ours: Side, raw: Side) -> Spread:
    """Of the medians of each pair of turns."""
    pairs = zip(ours.turns, raw.turns, strict=True)
    return Spread.of([float(np.median(first) / np.median(second)) for first, second in pairs])


def start_shards(group: ProcessGroup, count: int, *more: str) -> tuple[str, list[psutil.Process]]:
    """Starts shards for one job, with further flags; returns their addresses as --ps takes them."""
    addresses: list[str] = []
    shards = []
    for shard in range(count):
        lead = ["--lead", addresses[0]] if shard else []
        flags = ["--shard", str(shard), "--shards", str(count), "--port", "0", *lead, *more]
        child = group.start(f"ps {shard}", [program("psserver"), *flags])
        addresses.append(await_line(group, child, r"READY .*address=(\S+)")[1])
        shards.append(psutil.Process(child.pid))
    return ",".join(addresses), shards


@contextmanager
def push_pull(
    size: Size, shard_count: int, shard_flags: Sequence[str] = (), security: Security | None = None
) -> Iterator[Side]:
    """Opens a job on shards of its own, with further flags, which end with the block."""
    from grpc_ps.client import ParameterSpec, PSClient

    generator = np.random.default_rng(0)
    specs = [ParameterSpec(name=f"p{i}", shape=shape, dtype="float32") for i, shape in enumerate(size.shapes)]
    gradients = {spec.name: generator.standard_normal(spec.shape, dtype=np.float32) for spec in specs}
    with processes() as group:
        addresses, shards = start_shards(group, shard_count, *shard_flags)
        with PSClient(addresses, security=security) as client:
            session = client.join("benchmark", specs, stated={"optimizer": "adagrad", "learning_rate": 0.01})
            session.open({spec.name: np.zeros(spec.shape, np.float32) for spec in specs})
            session.begin()

            def exchange() -> None:
                reply = client.push(gradients)
                assert reply.outcome == "APPLIED", reply

            yield Side(exchange, shards)
            client.stop()


@contextmanager
def raw_stream(size: Size) -> Iterator[Side]:
    """Opens a stream to an echo server, which ends with the block."""
    with processes() as group:
        child = group.start("raw stream", script("raw_stream.py"))
        stream = RawStream(await_line(group, child, r"READY address=(\S+)")[1], size.nbytes)
        try:
            yield Side(stream.exchange, [psutil.Process(child.pid)])
        finally:
            stream.close()


def measure(name: str, steps: int | None, shard_count: int) -> dict[str, Any]:
    size = SIZES[name]
    each = max(1, (steps or size.steps) // TURNS)
    with push_pull(size, shard_count) as ours, raw_stream(size) as raw:
        for _ in range(TURNS):
            ours.turn(each)
            raw.turn(each)
    both = {"ours": ours.record(), "raw": raw.record(), "ratio": ratios(ours, raw).record()}
    return {"size": name, "bytes": size.nbytes, "steps": each * TURNS, **both}


HEAD = f"{'':6} {'ms: median (min, p90)':>22} {'CPU ms: c + s':>15} {'raw ms':>22} {'raw CPU ms':>15} {'ratio':>21}"


def row(result: Mapping[str, Any]) -> str:
    ours, raw = result["ours"], result["raw"]
    walls = [Spread(**side["wall_ms"]).times() for side in (ours, raw)]
    cpus = [f"{side['cpu_ms']['client']:.2f} + {side['cpu_ms']['server']:.2f}" for side in (ours, raw)]
    ratio = Spread(**result["ratio"]).range()
    return f"{result['size']:<6} {walls[0]:>22} {cpus[0]:>15} {walls[1]:>22} {cpus[1]:>15} {ratio:>21}"


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default=",".join(SIZES), help=f"some of {', '.join(SIZES)}")
    parser.add_argument("--steps", type=int, help="steps of each size; default: more for small ones")
    parser.add_argument("--shards", type=int, default=1)
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    arguments.sizes = arguments.sizes.split(",")
    if unknown := set(arguments.sizes) - set(SIZES):
        parser.error(f"--sizes: {', '.join(sorted(unknown))} is none of {', '.join(SIZES)}")
    return arguments


def main() -> None:
    arguments = parse_arguments()
    if not arguments.json:
        print(f"push and pull, {arguments.shards} shard(s), Adagrad; a plain gRPC stream with the same bytes beside it")
        print(HEAD)
    results = []
    for name in arguments.sizes:
        results.append(measure(name, arguments.steps, arguments.shards))
        if not arguments.json:
            print(row(results[-1]), flush=True)
    if arguments.json:
        print(json.dumps({"benchmark": "push_pull", "shards": arguments.shards, "results": results}))


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
