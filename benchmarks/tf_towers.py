"""One process of TensorFlow's own runtime in the third seed's experiment; scaling.py starts a cluster of them.

A client builds one graph: parameters on the ps, a tower with random images on each worker, the mean of their gradients,
one update a step. Without a cluster the client computes it alone. Towers and the client alone keep to one core each.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from typing import Any

from grpc_ps.client.shared.cores import allowed_cores, pin

DENSE = ((6 * 6 * 64, 384), (384, 192), (192, 10))
SIZE = 24


def variable(tf1: Any, name: str, shape: list[int], deviation: float) -> Any:
    first = tf1.truncated_normal_initializer(stddev=deviation)
    return tf1.get_variable(name, shape, initializer=first)


def tower_loss(tf1: Any, images: Any, labels: Any) -> Any:
    """The network of `grpc_ps.models.cifar10`, without its weight decay."""
    x, channels = images, 3
    for number in range(2):
        kernel = variable(tf1, f"conv{number}", [5, 5, channels, 64], 0.05)
        x = tf1.nn.conv2d(x, kernel, strides=[1, 1, 1, 1], padding="SAME")
        x = tf1.nn.relu(tf1.nn.bias_add(x, variable(tf1, f"conv{number}_b", [64], 1e-4)))
        layers = [pooled, normalized] if number == 0 else [normalized, pooled]
        for layer in layers:
            x = layer(tf1, x)
        channels = 64
    x = tf1.reshape(x, [-1, DENSE[0][0]])
    for number, (inputs, units) in enumerate(DENSE):
        x = tf1.nn.relu(x) if number else x
        x = tf1.matmul(x, variable(tf1, f"dense{number}", [inputs, units], 0.04))
        x = x + variable(tf1, f"dense{number}_b", [units], 1e-4)
    return tf1.reduce_mean(tf1.nn.sparse_softmax_cross_entropy_with_logits(labels=labels, logits=x))


def pooled(tf1: Any, x: Any) -> Any:
    return tf1.nn.max_pool(x, ksize=[1, 3, 3, 1], strides=[1, 2, 2, 1], padding="SAME")


def normalized(tf1: Any, x: Any) -> Any:
    return tf1.nn.lrn(x, 4, bias=1.0, alpha=0.001 / 9.0, beta=0.75)


def build(tf1: Any, towers: list[str], batch: int, ps: str) -> Any:
    """The update of one step: `towers` are the devices of the workers, `ps` that of the parameters."""
    with tf1.device(ps or "/cpu:0"):
        optimizer = tf1.train.GradientDescentOptimizer(0.1)
        gradients = []
        for device in towers:
            # As its users place them: variables on the ps, all else on the tower.
            place = tf1.train.replica_device_setter(worker_device=device, ps_device=ps, ps_tasks=1) if ps else device
            with tf1.device(place), tf1.variable_scope("", reuse=tf1.AUTO_REUSE):
                images = tf1.random_uniform([batch, SIZE, SIZE, 3], -1.0, 1.0)
                labels = tf1.random_uniform([batch], 0, 10, tf1.int32)
                gradients.append(optimizer.compute_gradients(tower_loss(tf1, images, labels)))
        means = [
            (tf1.add_n([gradient for gradient, _ in each]) / len(towers), each[0][1])
            for each in zip(*gradients, strict=True)
        ]
        return optimizer.apply_gradients(means)


def client(tf1: Any, arguments: argparse.Namespace, config: Any) -> None:
    workers = len(arguments.cluster["worker"]) if arguments.cluster else 0
    towers = [f"/job:worker/task:{task}/cpu:0" for task in range(workers)] or ["/cpu:0"]
    update = build(tf1, towers, arguments.batch, "/job:ps/task:0" if workers else "")
    target = f"grpc://{arguments.cluster['ps'][0]}" if workers else ""
    with tf1.Session(target, config=config) as session:
        session.run(tf1.global_variables_initializer())
        end = time.monotonic() + arguments.warm_up
        while time.monotonic() < end:
            session.run(update)
        begin, steps = time.monotonic(), 0
        while time.monotonic() < begin + arguments.seconds:
            session.run(update)
            steps += 1
        seconds = time.monotonic() - begin
    print(json.dumps({"images_per_s": steps * arguments.batch * len(towers) / seconds}), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description="One process; scaling.py starts the cluster.")
    parser.add_argument("--cluster", type=json.loads, help='{"ps": [address], "worker": [...]}; default: alone')
    parser.add_argument("--job", choices=["ps", "worker", "client"], default="client")
    parser.add_argument("--task", type=int, default=0)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--warm-up", type=float, default=3.0)
    parser.add_argument("--seconds", type=float, default=10.0)
    arguments = parser.parse_args()
    if arguments.job == "worker" or not arguments.cluster:
        cores = allowed_cores()
        pin([cores[arguments.task % len(cores)]])
    os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", CUDA_VISIBLE_DEVICES="-1")
    import tensorflow as tf

    tf1 = tf.compat.v1
    tf1.disable_v2_behavior()
    config = tf1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    if arguments.job == "client":
        client(tf1, arguments, config)
        return
    cluster = tf.train.ClusterSpec(arguments.cluster)
    server = tf.distribute.Server(cluster, job_name=arguments.job, task_index=arguments.task, config=config)
    print("READY", flush=True)
    server.join()


if __name__ == "__main__":
    main()
