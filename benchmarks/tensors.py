"""What do many small tensors cost? Push and pull of ResNet-50's 161 beside the same bytes in one tensor."""

from __future__ import annotations

import argparse

import resnet50
from figures import Comparison, report
from processes import run_to_end
from push_pull import Size, push_pull

from grpc_ps.client.shared.process import prepare_process

WARM_UP = 2
"""Steps of a turn that are not counted."""


def measure(steps: int, repeats: int) -> Comparison:
    many = Size(shapes=list(resnet50.shapes()), steps=0)
    one = Size(shapes=[(many.nbytes // 4,)], steps=0)
    with push_pull(many, 1) as ours, push_pull(one, 1) as other:
        for _ in range(repeats):
            ours.turn(steps, WARM_UP)
            other.turn(steps, WARM_UP)
    name = f"{len(many.shapes)} tensors instead of 1"
    return Comparison(name=name, unit="ms", ours=ours.medians, other=other.medians)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--steps", type=int, default=10, help="steps of a turn")
    parser.add_argument("--repeats", type=int, default=5, help="turns of each side")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    report("tensors", [measure(arguments.steps, arguments.repeats)], as_json=arguments.json)


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
