"""Does the speed of push and pull depend on the size of a parameter? GB/s of 1 MB to 1 GB beside those of 16 MB.

One parameter, one client, Adagrad. Megabytes are of 2^20 bytes; GB/s count the bytes both ways.
"""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from types import MappingProxyType

from figures import Comparison, report
from processes import run_to_end
from push_pull import Side, Size, push_pull

from grpc_ps.client.shared.process import prepare_process

BESIDE = 16
# Megabytes, with the steps of a turn and those before it that are not counted.
STEPS: Mapping[int, tuple[int, int]] = MappingProxyType(
    {1: (200, 20), 4: (100, 10), BESIDE: (40, 5), 64: (10, 2), 256: (4, 1), 1024: (2, 1)}
)


def compare(megabytes: int, other: Side, repeats: int) -> Comparison:
    """A shard of that size, in turn with the one of `BESIDE`."""
    size = _size(megabytes)
    begin = len(other.turns)
    with push_pull(size, 1) as ours:
        for _ in range(repeats):
            ours.turn(*STEPS[megabytes])
            other.turn(*STEPS[BESIDE])
    name = f"{megabytes} MB" if megabytes < 1024 else f"{megabytes // 1024} GB"
    beside = _rates(other, _size(BESIDE))[begin:]
    return Comparison(name=name, unit="GB/s", ours=_rates(ours, size), other=beside)


def _size(megabytes: int) -> Size:
    return Size(shapes=[(megabytes << 18,)], steps=0)


def _rates(side: Side, size: Size) -> list[float]:
    return [2 * size.nbytes / (wall * 1e6) for wall in side.medians]


def main() -> None:
    others = ",".join(str(each) for each in STEPS if each != BESIDE)
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default=others, help=f"in MB, some of {others}")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    if unknown := [each for each in arguments.sizes.split(",") if each not in others.split(",")]:
        parser.error(f"--sizes: {unknown[0]} is none of {others}")
    sizes = [int(each) for each in arguments.sizes.split(",")]
    with push_pull(_size(BESIDE), 1) as other:
        report("sizes", (compare(each, other, arguments.repeats) for each in sizes), as_json=arguments.json)


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
