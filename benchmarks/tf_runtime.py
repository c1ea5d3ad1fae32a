"""One task of TensorFlow's own parameter-server runtime, on the same work as ours: what peers.py starts beside us.

The network, its initial values' distribution, the optimizer, the batch and the data are `grpc_ps.models.mnist`'s. It is
written as its users write it: replica_device_setter, minimize, a feed, MonitoredTrainingSession, and with --sync
SyncReplicasOptimizer. In its favour: pixels are made floats before training, a step fetches nothing but the update.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import time
from pathlib import Path
from typing import Any

import numpy as np

INITIAL_ACCUMULATOR = 1e-5


def load(directory: Path | None, seed: int) -> tuple[Any, Any]:
    """Images as floats in [0, 1] and labels, shuffled."""
    from grpc_ps.models.datasets import open_data

    name = "synthetic" if directory is None else None
    train: Any = open_data("digits", name=name, directory=directory).train
    order = np.random.default_rng(seed).permutation(train.examples)
    images, labels = train.take(order)
    return images.astype(np.float32) / np.float32(255), labels.astype(np.int64)


def build(tf1: Any, layers: int, hidden: int, optimizer: Any) -> tuple[Any, Any, Any, Any]:
    """The graph: features, labels, the update, the global step."""
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
    return features, labels, optimizer.minimize(loss, global_step=step), step


def train(session: Any, graph: tuple[Any, Any, Any, Any], data: tuple[Any, Any], task: int, batch: int) -> None:
    """Trains until this process is ended, and says the global step about once a second, as our worker does."""
    features, labels, update, step = graph
    images, classes = data
    at, due = 0, time.monotonic()
    while True:
        session.run(update, {features: images[at : at + batch], labels: classes[at : at + batch]})
        at = at + batch if at + 2 * batch <= len(images) else 0
        if time.monotonic() >= due:
            print(f"worker {task}: global_step {session.run(step)}", flush=True)
            due = time.monotonic() + 1.0


def wait_for(file: Path) -> None:
    """A worker that finds the model not initialized yet would look again only half a minute later."""
    deadline = time.monotonic() + 240.0
    while not file.exists() and time.monotonic() < deadline:
        time.sleep(0.02)


def run_worker(tf: Any, server: Any, cluster: Any, arguments: argparse.Namespace) -> None:
    tf1, task = tf.compat.v1, arguments.task
    data = load(arguments.data_dir, seed=task)
    device = f"/job:worker/task:{task}"
    optimizer = tf1.train.AdagradOptimizer(0.01, initial_accumulator_value=INITIAL_ACCUMULATOR)
    hooks = []
    if arguments.sync:
        count = cluster.num_tasks("worker")
        optimizer = tf1.train.SyncReplicasOptimizer(optimizer, replicas_to_aggregate=count, total_num_replicas=count)
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
        train(session, graph, data, task, arguments.batch)


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
