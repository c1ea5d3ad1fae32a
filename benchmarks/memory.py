"""What does a shard hold in memory? What it has over TensorFlow's own, beside what it cannot do without.

That is the weights, Adagrad's slot, one copy of the weights (a release is of one step, while the next one is applied)
and one push of each member. TensorFlow's own is what a process has that imports it as the shard does, and has done one
small operation.
"""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np
import psutil
from figures import Comparison, in_turn, report
from processes import await_line, processes, run_to_end, script
from push_pull import start_shards

from grpc_ps.client.shared.process import prepare_process

if TYPE_CHECKING:  # It imports gRPC, which the process has to be prepared for.
    from grpc_ps.client import PSClient

# Pushes of each member while memory is read, and seconds from one reading to the next.
STEPS = 8
EVERY = 0.02
# Copies of the weights that a shard has to have beside the pushes: themselves, the slot, and one for releases.
COPIES = 3


def resident(megabytes: int, members: int) -> float:
    """The most that a shard had while all members pushed and pulled, in megabytes of 10^6 bytes."""
    with processes() as group, ExitStack() as stack:
        addresses, shards = start_shards(group, 1)
        elements = megabytes * 10**6 // 4
        gradients = {"w": np.full(elements, 1e-3, np.float32)}
        clients = [stack.enter_context(_member(addresses, elements)) for _ in range(members)]
        return _most(shards[0], [partial(_push, client, gradients) for client in clients]) / 1e6


@contextmanager
def _member(addresses: str, elements: int) -> Iterator[PSClient]:
    from grpc_ps.client import ParameterSpec, PSClient

    spec = ParameterSpec(name="w", shape=(elements,), dtype="float32")
    with PSClient(addresses) as client:
        session = client.join("benchmark", [spec], stated={"optimizer": "adagrad", "learning_rate": 0.01})
        if session.opener:
            session.open({"w": np.zeros(elements, np.float32)})
        session.begin()
        yield client


def _push(client: PSClient, gradients: dict[str, np.ndarray]) -> None:
    for _ in range(STEPS):
        client.push(gradients)


def _most(shard: psutil.Process, actions: list[Callable[[], None]]) -> int:
    """The largest reading of a process's resident bytes while the actions run, all at once."""
    threads = [threading.Thread(target=action, daemon=True) for action in actions]
    for thread in threads:
        thread.start()
    most = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, shard.memory_info().rss)
        time.sleep(EVERY)
    return most


def tensorflow_alone() -> None:
    """What the other process does."""
    import tensorflow as tf

    from grpc_ps.psserver.store import configure_tensorflow

    configure_tensorflow(1)
    variable, slot = tf.Variable(tf.zeros([4])), tf.Variable(tf.ones([4]))
    tf.raw_ops.ResourceApplyAdagrad(var=variable.handle, accum=slot.handle, lr=0.1, grad=tf.ones([4]))
    print("RESIDENT", psutil.Process().memory_info().rss, flush=True)


def alone() -> float:
    """Megabytes of TensorFlow's own."""
    with processes() as group:
        child = group.start("alone", [*script("memory.py"), "--alone"])
        return int(await_line(group, child, r"RESIDENT (\d+)")[1]) / 1e6


def compare(megabytes: int, members: int, repeats: int) -> Comparison:
    shard, base = in_turn([partial(resident, megabytes, members), alone], repeats)
    over = [ours - theirs for ours, theirs in zip(shard, base, strict=True)]
    needed = [float(megabytes * (COPIES + members))] * repeats
    name = f"{megabytes} MB, {members} member(s)"
    return Comparison(name=name, unit="MB", ours=over, other=needed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--sizes", default="40,256", help="in megabytes of 10^6 bytes")
    parser.add_argument("--members", default="1,4")
    parser.add_argument("--repeats", type=int, default=5, help="shards of each kind")
    parser.add_argument("--json", action="store_true", help="one line of JSON")
    parser.add_argument("--alone", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.alone:
        tensorflow_alone()
        return
    sizes, members = ([int(each) for each in text.split(",")] for text in (arguments.sizes, arguments.members))
    kinds = [(size, count) for size in sizes for count in members]
    report("memory", (compare(*kind, arguments.repeats) for kind in kinds), as_json=arguments.json)


if __name__ == "__main__":
    prepare_process()  # Before anything imports gRPC.
    run_to_end(main)
