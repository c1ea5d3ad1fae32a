"""What does a second shard cost? Training of mnist's network, asynchronous, 2 workers, on 2 shards beside 1."""

from __future__ import annotations

import argparse
from dataclasses import replace
from functools import partial

from figures import Comparison, in_turn, report
from processes import run_to_end
from training import Case, ours


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--shards", type=int, default=2)
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=5, help="pairs")
    parser.add_argument("--warm-up", type=float, default=2.0, help="seconds of training that are not counted")
    parser.add_argument("--seconds", type=float, default=8.0, help="seconds that are counted")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    arguments = parser.parse_args()
    one = Case(workers=arguments.workers, warm_up=arguments.warm_up, seconds=arguments.seconds)
    more = replace(one, shards=arguments.shards)
    several, single = in_turn([partial(ours, more), partial(ours, one)], arguments.repeats)
    name = f"{arguments.shards} shards instead of 1"
    report("two_shards", [Comparison(name=name, unit="steps/s", ours=several, other=single)], as_json=arguments.json)


if __name__ == "__main__":
    run_to_end(main)
