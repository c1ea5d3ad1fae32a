"""One task of TensorFlow's own parameter-server runtime, on the same work as ours: what peers.py starts beside us.

The network, its initial values' distribution, the optimizer, the batch and the data are `grpc_ps.models.mnist`'s. It is
written as its users write it: replica_device_setter, minimize, a feed, MonitoredTrainingSession, and with --sync
SyncReplicasOptimizer. In its favour: pixels are made floats before training, a step fetches nothing but the update.

Without --until it trains until it is ended; with it, worker 0 says the test data's accuracy when that step is reached.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

INITIAL_ACCUMULATOR = 1e-5


PERIOD = 0.1
"""Seconds between looks at the global step."""


@dataclass(frozen=True)
class Graph:
    """What a worker feeds and runs."""

    features: Any
    labels: Any
    logits: Any
    update: Any
    step: Any


def load(directory: Path | None) -> Any:
    """Examples to train with and, if they are real ones, to test with."""
    from grpc_ps.models.datasets import open_data

    return open_data("digits", name="synthetic" if directory is None else None, directory=directory)


def prepared(examples: Any, order: Any) -> tuple[Any, Any]:
    """Images as floats in [0, 1] and labels, in that order."""
    images, labels = examples.take(order)
    return images.astype(np.float32) / np.float32(255), labels.astype(np.int64)


def build(tf1: Any, layers: int, hidden: int, optimizer: Any) -> Graph:
    """The network and its update."""
    features = tf1.placeholder(tf1.float32, [None, 784])
    labels = tf1.placeholder(tf1.int64, [None])
    x, inputs = features, 784
    for layer, units in enumerate([hidden] * layers + [10]):
        deviation = 1.0 / math.sqrt(inputs)
        first = tf1.truncated_normal([inputs, units], stddev=deviation)
        weights = tf1.get_variable(f"w{layer}", initializer=first)
        biases = tf1.get_variable(f"b{layer}", initializer=tf1.zeros([units]))
        x, inputs = tf1.nn.xw_plus_b(tf1.nn.relu(x) if layer else x, weights, biases), units
    loss = tf1.reduce_mean(tf1.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x))
    step = tf1.train.get_or_create_global_step()
    return Graph(features, labels, x, optimizer.minimize(loss, global_step=step), step)


def train(session: Any, graph: Graph, data: tuple[Any, Any], task: int, batch: int, until: int) -> None:
    """Trains until that global step, and says it about once a second, as our worker does."""
    images, classes = data
    at, step, looks = 0, 0, 0
    due = time.monotonic()
    while step < until:
        session.run(graph.update, {graph.features: images[at : at + batch], graph.labels: classes[at : at + batch]})
        at = at + batch if at + 2 * batch <= len(images) else 0
        if time.monotonic() >= due:
            step = int(session.run(graph.step))
            if looks % 10 == 0:
                print(f"worker {task}: global_step {step}", flush=True)
            looks += 1
            due = time.monotonic() + PERIOD


def accuracy(session: Any, graph: Graph, data: tuple[Any, Any]) -> float:
    """The part of the examples that are recognised."""
    images, labels = data
    logits = session.run(graph.logits, {graph.features: images})
    return float(np.mean(np.argmax(logits, axis=1) == labels))


def wait_for(file: Path) -> None:
    """A worker that finds the model not initialized yet would look again only half a minute later."""
    deadline = time.monotonic() + 240.0
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def run_worker(tf: Any, server: Any, cluster: Any, arguments: argparse.Namespace) -> None:
    tf1, task = tf.compat.v1, arguments.task
    data = load(arguments.data_dir)
    order = np.random.default_rng(1000 * arguments.seed + task).permutation(data.train.examples)
    examples = prepared(data.train, order)
    tf1.set_random_seed(arguments.seed)
    device = f"/job:worker/task:{task}"
    optimizer = tf1.train.AdagradOptimizer(0.01, initial_accumulator_value=INITIAL_ACCUMULATOR)
    hooks = []
    if arguments.sync:
        count = cluster.num_tasks("worker")
        needed = arguments.aggregate or count
        optimizer = tf1.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=needed, total_num_replicas=count)
        hooks.append(optimizer.make_session_run_hook(task == 0, num_tokens=count))
    with tf1.device(tf1.train.replica_device_setter(worker_device=device, cluster=cluster)):
        graph = build(tf1, arguments.layers, arguments.hidden, optimizer)
    # Without the filter a worker waits for all the others before it begins.
    config = tf1.ConfigProto(device_filters=["/job:ps", device])
    chief = {"master": server.target, "is_chief": task == 0}
    if arguments.go:
        wait_for(arguments.go)
    with tf1.train.MonitoredTrainingSession(**chief, hooks=hooks, config=config) as session:
        print(f"worker {task}: INITIALIZED", flush=True)
        train(session, graph, examples, task, arguments.batch, arguments.until)
        if task == 0:
            test = prepared(data.test, np.arange(data.test.examples))
            print(f"accuracy {accuracy(session, graph, test)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="One task; peers.py starts the cluster.")
    parser.add_argument("--cluster", type=json.loads, required=True, help='{"ps": [address, ...], "worker": [...]}')
    parser.add_argument("--job", choices=["ps", "worker"], required=True)
    parser.add_argument("--task", type=int, default=0)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--hidden", type=int, default=100)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--go", type=Path, help="a worker begins when there is such a file")
    parser.add_argument("--sync", action="store_true", help="rounds of all workers")
    parser.add_argument("--aggregate", type=int, default=0, help="with --sync: of a round; default: all")
    parser.add_argument("--until", type=int, default=10**12, help="global step to end at")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="0: TensorFlow's default, one a core")
    parser.add_argument("--data-dir", type=Path)
    arguments = parser.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    import tensorflow as tf

    tf.compat.v1.disable_v2_behavior()
    cluster = tf.train.ClusterSpec(arguments.cluster)
    threads = {f"{kind}_op_parallelism_threads": arguments.threads for kind in ("intra", "inter")}
    config = tf.compat.v1.ConfigProto(**threads)
    server = tf.distribute.Server(cluster, job_name=arguments.job, task_index=arguments.task, config=config)
    if arguments.job == "ps":
        print("READY", flush=True)
        server.join()
    run_worker(tf, server, cluster, arguments)


if __name__ == "__main__":
    main()
