"""Many clients, more than a shard can serve at once: everybody is answered, and memory stays bounded."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import grpc
import psutil
import pytest
from commands import Command, ready
from history import wait_for
from light_process import light_process
from light_swarm import light_swarm
from light_worker import constant, run_worker, run_workers
from shard_process import shard_process

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.protos.control_pb2 import StatusRequest, StatusResponse
from grpc_ps.protos.control_pb2_grpc import ControlStub

MIB = 1 << 20
IDLE, ACTIVE = 200, 50
CALLS = 20
LONGEST_STATUS = 1.0
EXACT = {"learning_rate": 2.0**-10, "max_workers": 300}


def applied(answer: StatusResponse) -> list[int]:
    """The pushes of each member that count."""
    return [worker.applied for worker in answer.workers]


def test_status_answers_in_a_second_among_two_hundred_idle_and_fifty_active_clients() -> None:
    """The clients have processes of their own, so that this one's answer does not wait for its own threads.

    Two hundred heartbeats from one process may be late on a busy machine: the lease is long.
    """
    with ExitStack() as stack:
        shard = stack.enter_context(Command(*shard_process(presets=EXACT, limits={"lease": 60.0})))
        address = ready(shard)
        stack.enter_context(Command(*light_swarm(address, idle=IDLE, active=0))).until("^ready$")
        swarm = stack.enter_context(Command(*light_swarm(address, idle=0, active=ACTIVE)))
        swarm.until("^ready$")
        status = ControlStub(stack.enter_context(grpc.insecure_channel(address))).Status

        def pushed(least: int) -> bool:
            assert "error" not in swarm.text, swarm.text
            return min(applied(status(StatusRequest(), timeout=30))[IDLE:]) >= least

        wait_for(lambda: pushed(1), "a push of every active worker", 60)
        before = max(applied(status(StatusRequest(), timeout=30)))
        answers: list[float] = []
        deadline = time.monotonic() + 60
        # One that comes late on a machine that is busy with other things begins the series anew.
        while len(answers) < CALLS:
            assert time.monotonic() < deadline, f"never {CALLS} answers in a row within {LONGEST_STATUS:g} s each"
            begun = time.monotonic()
            try:
                answer = status(StatusRequest(), timeout=LONGEST_STATUS)
            except grpc.RpcError:
                answers.clear()
            else:
                answers.append(time.monotonic() - begun)
                assert len(answer.workers) == IDLE + ACTIVE
                assert applied(answer)[:IDLE] == [0] * IDLE
        wait_for(lambda: pushed(before + 1), "more pushes of every active worker", 60)
        print(f"longest of {CALLS} status calls: {max(answers) * 1000:.0f} ms")


def push_eight_mebibytes(pushes: int) -> None:
    """Eight workers push as fast as they can to a shard whose updates take 50 ms."""
    spec = ParameterSpec(name="w", shape=(2 * MIB,), dtype="float32")
    size = spec.nbytes
    workers = 8
    with Command(*shard_process(presets=EXACT, apply_seconds=0.05)) as shard:
        address = ready(shard)
        run_worker(address, [spec], constant(1.0), pushes=2)
        process = psutil.Process(shard.process.pid)
        before = most = process.memory_info().rss
        stop = threading.Event()

        def look() -> None:
            nonlocal most
            while not stop.wait(0.02):
                most = max(most, process.memory_info().rss)

        looking = threading.Thread(target=look)
        looking.start()
        try:
            done = run_workers(
                workers, lambda _: run_worker(address, [spec], constant(1.0), pushes=pushes // workers, timeout=60.0)
            )
        finally:
            stop.set()
            looking.join()
    print(f"{pushes} pushes: {before / MIB:.0f} MiB before, at most {most / MIB:.0f}")
    assert [dict(it.outcomes) for it in done] == [{"APPLIED": pushes // workers}] * workers
    # Of each worker a staged push and the values of an answer, each perhaps once more on its way through gRPC: pushes
    # that nobody lets go of, or that wait in a queue, would soon be many times that.
    assert most - before <= 4 * workers * size


def test_b68_pushes_that_outrun_the_shard_are_slowed_down() -> None:
    """Fault B68."""
    push_eight_mebibytes(64)


@pytest.mark.slow
def test_b68_five_hundred_pushes_that_outrun_the_shard() -> None:
    """Fault B68, as long as it was reported."""
    push_eight_mebibytes(504)


def test_who_waits_takes_no_processor_time() -> None:
    """Two shards and a worker that waits for another one: nobody looks again and again."""
    with ExitStack() as stack:
        presets = ("--mode", "sync", "--workers", 2)
        lead = stack.enter_context(Command("psserver", "--shard", 0, "--shards", 2, "--port", 0, *presets))
        address = ready(lead)
        other = stack.enter_context(Command("psserver", "--shard", 1, "--shards", 2, "--port", 0, "--lead", address))
        addresses = f"{address},{ready(other)}"
        worker = stack.enter_context(Command(*light_process(addresses)))
        with PSClient(addresses, timeout=60.0) as client:
            idle = ["waiting for others to join"]
            wait_for(lambda: [it.activity for it in client.status().workers] == idle, "the worker", 60)
            # Both have their values, so both have done with importing what they need.
            client.pull()
        processes = [psutil.Process(it.process.pid) for it in (lead, other, worker)]
        before = [sum(process.cpu_times()[:2]) for process in processes]
        begun = time.monotonic()
        assert not threading.Event().wait(3.0)
        seconds = time.monotonic() - begun
        used = [sum(process.cpu_times()[:2]) - spent for process, spent in zip(processes, before, strict=True)]
    print("of a core:", *(f"{100 * spent / seconds:.1f} %" for spent in used))
    assert max(used) < 0.05 * seconds
