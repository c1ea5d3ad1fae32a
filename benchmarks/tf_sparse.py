"""One task of TensorFlow's own parameter-server runtime with a sparse table: what sparse.py starts beside us.

Written as its users write it: a partitioned variable, embedding_lookup of the distinct ids, Adagrad's sparse update,
MonitoredTrainingSession. In its favour: a step fetches nothing but the update.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from grpc_ps.models.datasets.zipf import Zipf


def build(tf: Any, rows: int, dim: int, shards: int) -> tuple[Any, Any, Any]:
    """The graph: ids, the update, the global step."""
    tf1 = tf.compat.v1
    parts = tf1.fixed_size_partitioner(shards) if shards > 1 else None
    first = tf1.random_uniform_initializer(-0.05, 0.05)
    table = tf1.get_variable("emb", [rows, dim], initializer=first, partitioner=parts)
    ids = tf1.placeholder(tf1.int64, [None])
    distinct, places = tf1.unique(ids)
    found = tf1.gather(tf1.nn.embedding_lookup(table, distinct, partition_strategy="mod"), places)
    loss = tf1.reduce_mean(tf1.square(found - 1.0))
    step = tf1.train.get_or_create_global_step()
    return ids, tf1.train.AdagradOptimizer(0.01).minimize(loss, global_step=step), step


def run_worker(tf: Any, server: Any, cluster: Any, arguments: argparse.Namespace) -> None:
    """Trains until this process is ended, and says the global step about once a second, as our worker does."""
    tf1, task = tf.compat.v1, arguments.task
    device = f"/job:worker/task:{task}"
    drawn = Zipf(arguments.rows, arguments.ids)._drawn
    with tf1.device(tf1.train.replica_device_setter(worker_device=device, cluster=cluster)):
        ids, update, step = build(tf, arguments.rows, arguments.dim, cluster.num_tasks("ps"))
    # Without the filter a worker waits for all the others before it begins.
    config = tf1.ConfigProto(device_filters=["/job:ps", device])
    chief = {"master": server.target, "is_chief": task == 0}
    with tf1.train.MonitoredTrainingSession(**chief, config=config) as session:
        number, due = 0, time.monotonic()
        while True:
            session.run(update, {ids: drawn[number % len(drawn)]})
            number += 1
            if time.monotonic() >= due:
                print(f"worker {task}: global_step {session.run(step)}", flush=True)
                due = time.monotonic() + 1.0


def main() -> None:
    parser = argparse.ArgumentParser(description="One task; sparse.py starts the cluster.")
    parser.add_argument("--cluster", type=json.loads, required=True, help='{"ps": [address, ...], "worker": [...]}')
    parser.add_argument("--job", choices=["ps", "worker"], required=True)
    parser.add_argument("--task", type=int, default=0)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--dim", type=int, default=64)
    parser.add_argument("--ids", type=int, default=4096)
    arguments = parser.parse_args()
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    import tensorflow as tf

    tf.compat.v1.disable_v2_behavior()
    cluster = tf.train.ClusterSpec(arguments.cluster)
    server = tf.distribute.Server(cluster, job_name=arguments.job, task_index=arguments.task)
    if arguments.job == "ps":
        server.join()
    run_worker(tf, server, cluster, arguments)


if __name__ == "__main__":
    main()
