"""SIGTERM and SIGINT end any process within its grace time, whatever it is doing (fault B58)."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from commands import ENDED, Command, ready
from light_process import light_process
from local_cluster import LocalCluster

from grpc_ps.psserver.lead.log import Admit
from grpc_ps.psserver.updates import load_store

pytestmark = pytest.mark.e2e

# `test_by_hand.py` sends both in the middle of training and of the start.
SIGNALS = (signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow))
# A grace time that no test waits for.
LONG = 600

# One step says that it has begun, and then takes for ever: inside TensorFlow, where no signal handler runs.
LONG_STEP = """
import threading
import numpy as np
import tensorflow as tf
from grpc_ps.models.linear import Linear

def compute():
    print("computing", flush=True)
    threading.Event().wait(600)
    return np.float32(0)

class Model(Linear):
    def losses(self, features, labels):
        return super().losses(features, labels) + tf.ensure_shape(tf.numpy_function(compute, [], tf.float32), [])
"""


@pytest.fixture(scope="module", autouse=True)
def _tensorflow() -> None:
    """Imports TensorFlow before any cluster starts: that takes seconds, in which short leases would end."""
    load_store(1)


def check_ended(one: Command, *numbers: signal.Signals) -> None:
    assert one.wait(ENDED) in {128 + number for number in numbers}, one.text
    assert "Traceback" not in one.text


@contextmanager
def shard_with_workers(count: int, *flags: object) -> Iterator[tuple[Command, list[Command]]]:
    """A shard process, and workers without a model that train on it."""
    with ExitStack() as stack:
        shard = stack.enter_context(Command("psserver", "--shard", 0, "--port", 0, *flags))
        address = ready(shard)
        yield shard, [stack.enter_context(Command(*light_process(address, names=["w"]))) for _ in range(count)]


@pytest.mark.parametrize("number", SIGNALS)
def test_b58_a_shard_with_three_streams(number: signal.Signals) -> None:
    with shard_with_workers(3) as (shard, workers):
        for worker in workers:
            worker.until("step")
        shard.process.send_signal(number)
        check_ended(shard, number)
        assert [worker.wait(ENDED) for worker in workers] == [4, 4, 4]
        assert all("told to end by a signal" in worker.lines[-1] for worker in workers)


@pytest.mark.parametrize("number", SIGNALS)
def test_b58_a_shard_on_which_workers_wait_for_a_round(number: signal.Signals) -> None:
    with shard_with_workers(2, "--mode", "sync", "--workers", 3) as (shard, workers):
        for _ in workers:
            shard.until(r" joined worker=1 ")
        shard.process.send_signal(number)
        check_ended(shard, number)
        assert [worker.wait(ENDED) for worker in workers] == [4, 4]


def test_b58_a_second_signal_ends_a_shard_at_once() -> None:
    """Its worker stands still, so the shard would wait for it as long as the grace time allows."""
    with shard_with_workers(1, "--grace", LONG) as (shard, [worker]):
        worker.until("step")
        worker.process.send_signal(signal.SIGSTOP)
        shard.process.send_signal(signal.SIGTERM)
        # Two that come at once are one.
        shard.until(r" signal signal=SIGTERM grace=600")
        shard.process.send_signal(signal.SIGTERM)
        check_ended(shard, signal.SIGTERM)
        worker.process.send_signal(signal.SIGCONT)


@pytest.mark.parametrize("number", SIGNALS)
def test_b58_a_worker_that_waits_for_parameters(number: signal.Signals) -> None:
    """In a blocking pull: sync, and the other worker never comes."""
    with (
        LocalCluster(1, presets={"mode": "sync", "workers": 2}) as cluster,
        Command("worker", "--ps", cluster.addresses, "--model", "linear") as worker,
    ):
        worker.until(" joined ")
        assert cluster.history.of(Admit)
        worker.process.send_signal(number)
        check_ended(worker, number)


@contextmanager
def in_a_step(folder: Path, *flags: object) -> Iterator[Command]:
    """A worker in the middle of a step that takes for ever."""
    model = folder / "long_step.py"
    model.write_text(LONG_STEP)
    with (
        LocalCluster(1) as cluster,
        Command("worker", "--ps", cluster.addresses, "--model", f"{model}:Model", *flags) as worker,
    ):
        worker.until("^computing$")
        yield worker


@pytest.mark.parametrize("number", SIGNALS)
def test_b58_a_worker_inside_a_step(number: signal.Signals, tmp_path: Path) -> None:
    """Nothing can stop the step; the end of the grace time ends the process."""
    with in_a_step(tmp_path, "--grace", 0.5) as worker:
        worker.process.send_signal(number)
        check_ended(worker, number)


def test_b58_a_second_signal_ends_a_worker_inside_a_step_at_once(tmp_path: Path) -> None:
    with in_a_step(tmp_path, "--grace", LONG) as worker:
        # Two threads may take them at the same time, so either may be the second.
        worker.process.send_signal(signal.SIGINT)
        worker.process.send_signal(signal.SIGTERM)
        check_ended(worker, signal.SIGINT, signal.SIGTERM)
