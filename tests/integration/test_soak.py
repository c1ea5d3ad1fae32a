"""One shard for ten minutes while clients come and go in every way there is: nothing grows."""

from __future__ import annotations

import os
import random
import threading
import time
from dataclasses import dataclass

import numpy as np
import psutil
import pytest
from commands import Command, ready
from light_process import light_process
from light_worker import Crash, Gradient, constant, run_worker
from shard_process import shard_process

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import PsError

SECONDS = float(os.environ.get("GRPC_PS_SOAK_SECONDS", "600"))
SEED = 4
CLIENTS = 6
SPEC = ParameterSpec(name="w", shape=(100_000,), dtype="float32")
MIB = 1 << 20


@dataclass(frozen=True)
class Sample:
    """What the shard's process held at a time, in seconds from the start."""

    at: float
    resident: int
    threads: int
    descriptors: int


def crashing(after: int) -> Gradient:
    """Ones, until the worker is gone without a word."""
    made = 0

    def gradient(worker: int, batch: int, parameters: object) -> tuple[dict[str, np.ndarray], int]:
        nonlocal made
        made += 1
        if made > after:
            raise Crash
        return {SPEC.name: np.ones(SPEC.shape, SPEC.dtype)}, 1

    return gradient


def come_and_go(address: str, rng: random.Random) -> str:
    """One client's whole life; returns its kind."""
    kind = rng.choice(("leaves", "leaves", "vanishes", "killed", "reads", "asks"))
    steps = rng.randint(1, 60)
    if kind == "leaves":
        run_worker(address, [SPEC], constant(1.0), pushes=steps)
    elif kind == "vanishes":
        run_worker(address, [SPEC], crashing(steps))
    elif kind == "killed":
        # Of another model: it is refused at once, or killed while it asks.
        with Command(*light_process(address, names=["other"])) as process:
            threading.Event().wait(rng.random() * 0.4)
            process.process.kill()
    else:
        with PSClient(address, timeout=20.0) as client:
            for _ in range(steps):
                _ = client.pull() if kind == "reads" else client.status()
    return kind


def live(address: str, number: int, until: float, lives: list[str], errors: list[BaseException]) -> None:
    rng = random.Random(f"{SEED} {number}")
    while time.monotonic() < until and not errors:
        try:
            lives.append(come_and_go(address, rng))
        except PsError as error:
            # Readers may be too many at once; that is said, and nothing is wrong.
            if error.reason != "FULL":
                errors.append(error)
        except BaseException as error:
            errors.append(error)


def slope(samples: list[Sample], name: str) -> float:
    """Growth a minute, by the least squares."""
    minutes = np.array([sample.at / 60 for sample in samples])
    return float(np.polyfit(minutes, [getattr(sample, name) for sample in samples], 1)[0])


@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 300)
def test_nothing_grows_while_clients_come_and_go() -> None:
    presets = {"learning_rate": 2.0**-20, "max_workers": 200}
    with Command(*shard_process(presets=presets, limits={"lease": 10.0})) as shard:
        address = ready(shard)
        run_worker(address, [SPEC], constant(1.0), pushes=1)
        process = psutil.Process(shard.process.pid)
        begun, lives, errors = time.monotonic(), list[str](), list[BaseException]()
        arguments = (begun + SECONDS, lives, errors)
        clients = [threading.Thread(target=live, args=(address, number, *arguments)) for number in range(CLIENTS)]
        for client in clients:
            client.start()
        samples: list[Sample] = []
        every = threading.Event()
        while any(client.is_alive() for client in clients):
            every.wait(0.5)
            with process.oneshot():
                held = process.memory_info().rss, process.num_threads(), process.num_fds()
            samples.append(Sample(time.monotonic() - begun, *held))
        for client in clients:
            client.join()
        if errors:
            print(f"after {samples[-1].at:.0f} s: {errors}")
        with PSClient(address, timeout=20.0) as client:
            status = client.status()
    # The first minute, or the first tenth of a short run, makes what is made once.
    late = [sample for sample in samples if sample.at > min(60.0, SECONDS / 2)]
    rates = {name: slope(late, name) for name in ("resident", "threads", "descriptors")}
    print(
        f"{SECONDS:g} s, {len(lives)} clients { ({kind: lives.count(kind) for kind in sorted(set(lives))}) }, "
        f"step {status.global_step}; resident {late[0].resident / MIB:.0f} to {late[-1].resident / MIB:.0f} MiB, "
        f"a minute {rates['resident'] / MIB:+.2f} MiB, {rates['threads']:+.2f} threads, "
        f"{rates['descriptors']:+.2f} descriptors"
    )
    assert not errors
    # What is flat for ten minutes may move within one; noise of a short run is larger.
    scale = max(1.0, 600 / SECONDS)
    assert rates["resident"] < 1 * MIB * scale
    assert abs(rates["threads"]) < 0.5 * scale
    assert abs(rates["descriptors"]) < 1 * scale
