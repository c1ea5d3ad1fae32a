"""A worker that dies costs at most one gradient, whichever it is; its return sets nobody back."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest
from commands import Command
from history import History
from light_process import light_process
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Admit, Answer, Apply, Entry, Open

LR = 2.0**-10
LIMITS = Limits(rejoin=30.0)


@contextmanager
def sampled(cluster: LocalCluster) -> Iterator[list[int]]:
    """The global step as anybody sees it, every 50 ms while the `with` lasts."""
    seen: list[int] = []
    over = threading.Event()

    def look() -> None:
        with PSClient(cluster.addresses, timeout=20.0) as client:
            while not over.wait(0.05):
                seen.append(client.status().global_step)

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join(20)


def begun_at(history: History, incarnation: int) -> int:
    """The step of the first parameters that a life of a worker got."""
    got = [entry for entry in history.of(Answer) if entry.incarnation == incarnation and entry.release is not None]
    return int(got[0].step)


def test_b42_a_worker_that_comes_back_sets_nobody_back() -> None:
    """Fault B42: async; kill -9 of worker 0 after step 100, and it comes again; then the same with worker 1."""
    with LocalCluster(1, presets={"learning_rate": LR, "steps": 10**6}, limits=LIMITS) as cluster, ExitStack() as stack:
        history = cluster.history

        def start(index: int) -> Command:
            return stack.enter_context(Command(*light_process(cluster.addresses, index=index)))

        living = {index: start(index) for index in (0, 1)}
        history.until(lambda: history.step >= 100 and len(history.of(Admit)) == 2)
        with sampled(cluster) as seen:
            for index in (0, 1):
                before, lives = history.step, len(history.of(Admit))
                living[index].process.kill()
                living[index].process.wait()
                cluster.end_lease(index)
                living[index] = start(index)
                history.until(lambda lives=lives: len(history.of(Admit)) == lives + 1)  # type: ignore[misc]
                heir = history.of(Admit)[-1]
                assert heir.worker == index
                history.until(lambda heir=heir: applied_by(history, heir.incarnation))  # type: ignore[misc]
                assert begun_at(history, heir.incarnation) >= before >= 100
        with PSClient(cluster.addresses, timeout=20.0) as client:
            client.stop()
        assert [one.wait() for one in living.values()] == [0, 0]
    history.check()
    assert len(history.of(Open)) == 1
    assert seen
    assert seen == sorted(seen)


def applied_by(history: History, incarnation: int) -> bool:
    """Whether a life of a worker has taken part in the model."""
    return any(used.push.incarnation == incarnation for update in history.updates[0] for used in update.pushes)


@pytest.mark.parametrize(
    ("presets", "quorum"),
    [({"mode": "async"}, 1), ({"mode": "sync", "workers": 2, "backup": 1}, 2)],
    ids=["async", "sync 2 of 3"],
)
def test_b54_the_others_finish_when_worker_0_dies(presets: dict[str, Any], quorum: int, tmp_path: Path) -> None:
    """Fault B54: no worker is the chief. Worker 0, which opened the job, is killed at step 30 and never comes back."""
    together = tmp_path / "all-are-there"
    # Two shards hold the two parameters; all three workers wait for each other at batch 10.
    work: dict[str, Any] = {"names": ["w", "v"], "hold": [10, str(together)]}
    with LocalCluster(2, presets={"learning_rate": LR, "steps": 200, **presets}, limits=LIMITS) as cluster:
        history = cluster.history
        with ExitStack() as stack:
            chief = stack.enter_context(Command(*light_process(cluster.addresses, index=0, **work)))
            if quorum == 1:
                history.until(lambda: bool(history.of(Open)))
            others = [
                stack.enter_context(Command(*light_process(cluster.addresses, index=index, **work))) for index in (1, 2)
            ]

            def kill(shard: int, entry: Entry) -> None:
                if isinstance(entry, Apply) and entry.step == 30:
                    chief.process.kill()

            history.hooks.append(kill)
            history.until(lambda: len(history.of(Admit)) == 3)
            together.touch()
            assert [other.wait() for other in others] == [0, 0], [other.text for other in others]
            assert chief.wait() == -9
            cluster.end_lease(0)
        assert cluster.wait_ended() == [None, None]
    assert history.step == 200
    if quorum == 1:
        history.check()
    else:
        history.check_rounds(lambda update: quorum)
    assert {name: value for other in others for name, value in other.summary()["values"].items()} == {
        "w": -200 / 1024,
        "v": -200 / 1024,
    }
