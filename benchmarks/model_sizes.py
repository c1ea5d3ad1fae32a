"""How does the speed of training fall with the size of the model? Networks of 80 thousand to 10 million parameters.

Beside TensorFlow's own runtime, as in peers.py: asynchronous, 2 workers, one shard, batches of 10, so that moving the
parameters and not computing takes the time.
"""

from __future__ import annotations

import argparse

from figures import report
from peers import add_arguments, compare
from processes import run_to_end
from training import Case

# Hidden layers, and units in each.
NETWORKS = ((1, 100), (1, 1000), (3, 1024), (3, 2048))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    add_arguments(parser)
    parser.set_defaults(batch=10)
    arguments = parser.parse_args()
    names = ("batch", "data_dir", "threads", "warm_up", "seconds")
    chosen = {name: getattr(arguments, name) for name in names}
    how = ([""], arguments.repeats, arguments.peer, arguments.peer_steps)
    cases = [Case(layers=layers, hidden=hidden, **chosen) for layers, hidden in NETWORKS]
    report("model_sizes", (each for case in cases for each in compare(case, *how)), as_json=arguments.json)


if __name__ == "__main__":
    run_to_end(main)
