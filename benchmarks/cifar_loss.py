"""Does CIFAR-10 train here as in TensorFlow alone? The losses of both, step by step, from the same seed.

Ours is `psctl launch --model cifar10` in rounds, whose workers say the loss about once a second. TensorFlow's run is
one process and one loop: the network written out once more, plain gradient descent, on the batches of each round
together.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from figures import rounded
from plot import Curve, curves
from processes import program, run_to_end

from grpc_ps.client.shared.process import prepare_process

RATE = 0.1
LINE = re.compile(r"global_step (\d+), local_step \d+, loss = ([\d.]+)")


def ours(arguments: argparse.Namespace) -> tuple[dict[int, float], float]:
    """Losses by global step, of whichever worker said one, and the accuracy in percent of the values at the end."""
    workers = arguments.workers
    flags = f"--model cifar10 --mode sync --ps 1 --workers {workers} --batch-size {arguments.batch // workers}"
    flags += f" --steps {arguments.steps} --seed {arguments.seed} --moving-average 0 --threads 1 --json"
    with tempfile.TemporaryDirectory(prefix="grpc-ps-benchmark-") as logs:
        command = [program("psctl"), "launch", *flags.split(), *data_flags(arguments), "--log-dir", logs]
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    if ended.returncode:
        raise SystemExit(f"{ended.stderr}benchmark: {' '.join(command)} ended with exit code {ended.returncode}")
    losses = {int(found[1]): float(found[2]) for found in LINE.finditer(ended.stderr)}
    return losses, 100 * float(json.loads(ended.stdout)["metrics"]["accuracy"])


def data_flags(arguments: argparse.Namespace) -> list[str]:
    return ["--data-dir", arguments.data_dir, *(["--data", arguments.data] if arguments.data else [])]


def rounds(examples: int, batch_size: int, workers: int) -> Iterator[range]:
    """The batch numbers of one round after the other: none has batches of two epochs."""
    batches = -(-examples // batch_size)
    first = 0
    while True:
        for start in range(first, first + batches, workers):
            yield range(start, min(start + workers, first + batches))
        first += batches


def theirs(arguments: argparse.Namespace) -> tuple[list[float], float]:
    """The loss of each step, and the accuracy in percent at the end."""
    from grpc_ps.worker.device import start_tensorflow

    start_tensorflow(threads=1, device=None)
    import numpy as np
    import tensorflow as tf

    from grpc_ps.models.cifar10 import Cifar10
    from grpc_ps.models.datasets import open_data
    from grpc_ps.worker.data import source

    first = Cifar10()
    first.initialize(arguments.seed)
    values = {it.name.removesuffix(":0"): tf.Variable(it.read_value()) for it in first.variables}
    data = open_data("cifar10", name=arguments.data, directory=Path(arguments.data_dir))
    size = arguments.batch // arguments.workers
    batches = source(data.train, batch_size=size, seed=arguments.seed)  # type: ignore[arg-type]

    @tf.function(reduce_retracing=True)
    def step(images: Any, labels: Any) -> Any:
        with tf.GradientTape() as tape:
            loss = loss_of(values, images, labels)
        for name, gradient in tape.gradient(loss, values).items():
            values[name].assign_sub(RATE * gradient)
        return loss

    losses = []
    for _, numbers in zip(range(arguments.steps), rounds(data.train.examples, size, arguments.workers), strict=False):
        images, labels = (np.concatenate(parts) for parts in zip(*map(batches.batch, numbers), strict=True))
        losses.append(float(step(tf.constant(images), tf.constant(labels))))
    assert data.test is not None
    right = 0
    for start in range(0, data.test.examples, 1000):
        images, labels = data.test.take(np.arange(start, min(start + 1000, data.test.examples)))
        right += int(np.sum(np.argmax(logits_of(values, tf.constant(images)), axis=1) == labels))
    return losses, 100 * right / data.test.examples


def logits_of(values: dict[str, Any], images: Any) -> Any:
    """The tutorial's network."""
    import tensorflow as tf

    def convolved(x: Any, name: str) -> Any:
        return tf.nn.relu(tf.nn.conv2d(x, values[f"{name}_w"], 1, "SAME") + values[f"{name}_b"])

    def normalized(x: Any) -> Any:
        return tf.nn.lrn(x, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)

    x = normalized(tf.nn.max_pool2d(convolved(images, "conv1"), 3, 2, "SAME"))
    x = tf.nn.max_pool2d(normalized(convolved(x, "conv2")), 3, 2, "SAME")
    x = tf.reshape(x, [-1, 2304])
    for name in ("local3", "local4"):
        x = tf.nn.relu(x @ values[f"{name}_w"] + values[f"{name}_b"])
    return x @ values["softmax_w"] + values["softmax_b"]


def loss_of(values: dict[str, Any], images: Any, labels: Any) -> Any:
    """Its loss: cross entropy, and the weight decay of the hidden dense layers."""
    import tensorflow as tf

    entropy = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits_of(values, images))
    decay = sum(tf.nn.l2_loss(values[name]) for name in ("local3_w", "local4_w"))
    return tf.reduce_mean(entropy) + 0.004 * decay


def smoothed(losses: Sequence[float], width: int = 10) -> list[float]:
    """The mean of so many steps around each."""
    half = width // 2
    return [statistics.fmean(losses[max(0, at - half) : at + half + 1]) for at in range(len(losses))]


def compared(mine: dict[int, float], other: Sequence[float]) -> dict[str, float]:
    """How far the losses are apart, at the steps that ours says, and how much a batch alone makes them differ."""
    apart = [loss - other[step - 1] for step, loss in mine.items()]
    noise = [loss - mean for loss, mean in zip(other, smoothed(other), strict=True)]
    return {
        "points": len(apart),
        "mean_difference": statistics.fmean(apart),
        "largest_difference": max(map(abs, apart)),
        "deviation_of_differences": statistics.pstdev(apart),
        "deviation_of_batches": statistics.pstdev(noise),
    }


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--data-dir", required=True, help="CIFAR-10's binary files")
    parser.add_argument("--data", help="which of the training files, as data_batch_1; all without it")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--workers", type=int, default=1, help="of ours; each has its part of a batch")
    parser.add_argument("--batch", type=int, default=128, help="examples of a step, of all workers together")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--svg", type=Path, help="file for the picture")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    return parser.parse_args()


def main() -> None:
    arguments = parse_arguments()
    mine, accuracy = ours(arguments)
    other, other_accuracy = theirs(arguments)
    record = {name: rounded(value) for name, value in compared(mine, other).items()}
    record |= {"accuracy": rounded(accuracy), "tensorflow_accuracy": rounded(other_accuracy)}
    if arguments.svg is not None:
        lines = (
            Curve("TensorFlow alone", [(step, loss) for step, loss in enumerate(other, 1)]),
            Curve(f"grpc-ps, {arguments.workers} in rounds", sorted(mine.items())),
        )
        arguments.svg.write_text(curves(lines, "CIFAR-10, loss of a step", "step", "loss"), encoding="utf-8")
    if arguments.json:
        print(json.dumps({"benchmark": "cifar_loss", "steps": arguments.steps, "workers": arguments.workers, **record}))
        return
    for name, value in record.items():
        print(f"{name.replace('_', ' '):26} {value:g}")


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
