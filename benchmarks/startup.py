"""How soon does a worker train? Its first step, with the shard up, beside importing TensorFlow and tracing that step.

Both are processes of the same Python, started in turn. A time runs from the start of a process to its line: the
worker's is its first progress line, which it prints when its first push has been answered. The other one traces the
loss of mnist's network and its gradients once, and does not run them.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from figures import Comparison, in_turn, report
from processes import await_line, processes, program, run_to_end, script
from push_pull import start_shards

from grpc_ps.client.shared.process import prepare_process

TRACED = "TRACED"


def first_step() -> float:
    """Seconds, of a worker that opens the job on a shard of its own."""
    with processes() as group:
        addresses, _ = start_shards(group, 1)
        job = ["--model", "mnist", "--data", "digits", "--steps", "1000000"]
        return seconds_to([program("worker"), "--ps", addresses, *job], r"global_step [1-9]")


def seconds_to(command: Sequence[str], pattern: str) -> float:
    """From the start of a process to its first line with `pattern`; then it is ended."""
    with processes() as group:
        begin = time.perf_counter()
        await_line(group, group.start("measured", command), pattern)
        return time.perf_counter() - begin


def import_and_trace() -> None:
    """What the other process does."""
    import tensorflow as tf

    from grpc_ps.models.mnist import Mnist

    model = Mnist()

    def compute(features: Any, labels: Any) -> list[Any]:
        with tf.GradientTape() as tape:
            loss = tf.reduce_mean(model.losses(features, labels))
        return [loss, *tape.gradient(loss, model.variables)]

    signature = [tf.TensorSpec([None, 784], tf.float32), tf.TensorSpec([None], tf.int32)]
    tf.function(compute, input_signature=signature).get_concrete_function()
    print(TRACED, flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--repeats", type=int, default=5, help="pairs")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--trace", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.trace:
        import_and_trace()
        return
    other = partial(seconds_to, [*script("startup.py"), "--trace"], TRACED)
    if arguments.repeats > 1:  # Files that were not in memory are read now, and not in the first pair.
        other()
    ours, others = in_turn([first_step, other], arguments.repeats)
    first = Comparison(name="a worker's first step", unit="s", ours=ours, other=others)
    report("startup", [first], as_json=arguments.json)


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
