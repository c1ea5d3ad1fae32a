"""How fast is training beside TensorFlow's own parameter-server runtime? One shard, mnist's network, Adagrad.

Ours and the peer run in turn. Both are measured from outside in the same way: by when their workers' progress lines
say which global step.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from figures import Comparison, in_turn, report
from processes import run_to_end
from training import Case, ours, outside, tensorflow


def compare(case: Case, variants: Sequence[str], repeats: int, peer: Path | None, peer_steps: int) -> list[Comparison]:
    """Ours with each set of further flags, beside the same runs of the peer."""
    sides = [partial(ours, case, shlex.split(variant)) for variant in variants]
    other = partial(outside, peer, case, peer_steps) if peer else partial(tensorflow, case)
    *measured, others = in_turn([*sides, other], repeats)
    mode, unit = ("sync", "rounds/s") if case.sync else ("async", "steps/s")
    names = [f"{mode}, {case.workers} worker(s) {variant}".rstrip() for variant in variants]
    return [
        Comparison(name=name, unit=unit, ours=rates, other=others, nbytes=case.nbytes)
        for name, rates in zip(names, measured, strict=True)
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Flags of every script that compares with the peer."""
    parser.add_argument("--repeats", type=int, default=3, help="pairs of runs")
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--data-dir", type=Path, help="folder with MNIST's files; default: random images")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds of training that are not counted")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds that are counted")
    parser.add_argument("--threads", type=int, default=0, help="threads of each worker; default: as each side chooses")
    parser.add_argument("--peer", type=Path, help="another script in place of TensorFlow's runtime: see README.md")
    parser.add_argument("--peer-steps", type=int, default=2000, help="what it gets as --steps")
    parser.add_argument("--json", action="store_true", help="one line of JSON")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--workers", default="1,2", type=lambda text: [int(each) for each in text.split(",")])
    parser.add_argument("--sync", action="store_true", help="rounds of all workers")
    parser.add_argument("--hidden", type=int, default=100)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument(
        "--ours", action="append", metavar="FLAGS", help="of `psctl launch`, for our side; repeatable: each is compared"
    )
    add_arguments(parser)
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    names = ("sync", "hidden", "layers", "batch", "data_dir", "threads", "warm_up", "seconds")
    chosen = {name: getattr(arguments, name) for name in names}
    how = (arguments.ours or [""], arguments.repeats, arguments.peer, arguments.peer_steps)
    cases = [Case(workers=workers, **chosen) for workers in arguments.workers]
    report("peers", (each for case in cases for each in compare(case, *how)), as_json=arguments.json)


if __name__ == "__main__":
    run_to_end(main)
