"""Every push is applied once, whatever happens to its answer and to its worker (fault B40)."""

from __future__ import annotations

import random
import signal
import threading
from queue import SimpleQueue
from typing import Any

import pytest
from commands import Command
from flaky_link import links_to
from history import History
from light_process import light_process
from light_worker import DEADLINE, Outcome, constant, final_values, run_worker, scalar
from local_cluster import LocalCluster

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Answer, Apply, Dismiss, Entry

EXACT = {"optimizer": "sgd", "learning_rate": 2.0**-10, "steps": 100}
PARAMETERS = [scalar("w"), scalar("v")]


def lost(history: History) -> list[Dismiss]:
    """Members whose lease has ended."""
    return [entry for _, entry in history.entries[0] if isinstance(entry, Dismiss) and entry.reason == "FENCED"]


def assert_exact(done: Outcome, history: History) -> None:
    """A hundred updates of one, in the model and in the log."""
    assert {name: float(value) for name, value in done.parameters.items()} == dict.fromkeys(
        done.parameters, -100 / 1024
    )
    assert done.global_step == 100
    history.check()
    assert history.step == 100


@pytest.mark.parametrize(("shards", "cut"), [(1, 0), (2, 0), (2, 1)])
def test_b40_the_answer_is_lost_after_the_update(shards: int, cut: int) -> None:
    """Fault B40: the connection ends after the update and before the answer, at one push in three."""
    chance = random.Random(40)
    with LocalCluster(shards, presets=EXACT) as cluster, links_to(cluster.addresses) as links:
        cuts = 0

        def break_off(shard: int, entry: Entry) -> None:
            nonlocal cuts
            answers = isinstance(entry, Answer) and entry.result and not entry.result.repeated and entry.step
            if shard == cut and answers and chance.random() < 1 / 3:
                cuts += 1
                links[cut].cut()

        cluster.history.hooks.append(break_off)
        done = run_worker(",".join(link.address for link in links), PARAMETERS, constant(1.0))
        assert cluster.wait_ended() == [None] * shards
    assert cuts > 20
    assert_exact(done, cluster.history)
    assert dict(done.outcomes) == {"APPLIED": 100}
    if cut == 0:
        # The last answer may be overtaken by the end of the job. Where another shard's answer was lost, the lead's own
        # has told the outcome.
        assert done.repeated in (cuts - 1, cuts)


def test_b40_an_answer_comes_after_the_deadline_of_other_calls() -> None:
    """Fault B40: nothing arrives at the worker while three heartbeats time out; that is no reason to push again."""
    with LocalCluster(1, presets=EXACT, limits=Limits(lease=6.0)) as cluster, links_to(cluster.addresses) as [link]:
        coordinator: Any = cluster.servers[0]._coordinator
        beats, beat, held = threading.Semaphore(0), coordinator.beat, False

        def counted(*what: Any) -> Any:
            if held:
                beats.release()
            return beat(*what)

        def hold(shard: int, entry: Entry) -> None:
            nonlocal held
            if isinstance(entry, Apply) and entry.step == 10:
                held = True
                link.hold(to_client=True)

        coordinator.beat = counted
        cluster.history.hooks.append(hold)
        release = threading.Thread(target=lambda: [beats.acquire(timeout=20) for _ in range(3)] and link.release())
        release.start()
        done = run_worker(link.address, PARAMETERS, constant(1.0))
        release.join(20)
        assert link.cuts == 0
        assert cluster.wait_ended() == [None]
    assert_exact(done, cluster.history)
    assert (done.repeated, done.lives) == (0, 1)


def test_b40_an_answer_comes_after_the_end_of_the_lease() -> None:
    """Fault B40: the push counts, its worker is fenced, joins again and goes on behind it."""
    with LocalCluster(1, presets=EXACT) as cluster, links_to(cluster.addresses) as [link]:
        held = threading.Event()

        def hold(shard: int, entry: Entry) -> None:
            if isinstance(entry, Apply) and entry.step == 10:
                link.hold()
                held.set()

        cluster.history.hooks.append(hold)

        def release() -> None:
            assert held.wait(30)
            cluster.end_lease(0)
            cluster.history.until(lambda: bool(lost(cluster.history)))
            link.release()

        releasing = threading.Thread(target=release)
        releasing.start()
        done = run_worker(link.address, PARAMETERS, constant(1.0), rejoin=True)
        releasing.join(20)
        assert cluster.wait_ended() == [None]
    assert_exact(done, cluster.history)
    assert done.lives == 2
    # Whether its sender still read the answer to the tenth push or not, that push counts.
    assert done.outcomes["APPLIED"] in (99, 100)


@pytest.mark.parametrize("at", [30, 31])
def test_b40_a_process_is_stopped_for_longer_than_its_lease_and_continued(at: int) -> None:
    """Fault B40: a ghost of its own first life is refused; the process joins again and the sum is exact."""
    with LocalCluster(2, presets=EXACT) as cluster:
        stop = StopAt(cluster, at)
        with Command(*light_process(cluster.addresses, rejoin=True)) as worker:
            stop.await_stop(worker)
            cluster.end_lease(0)
            cluster.history.until(lambda: bool(lost(cluster.history)))
            assert 0 < cluster.history.step < 100
            worker.process.send_signal(signal.SIGCONT)
            assert worker.wait() == 0, worker.text
            ended = worker.summary()
        assert cluster.wait_ended() == [None, None]
    cluster.history.check()
    assert (ended["lives"], ended["step"], ended["values"]) == (2, 100, {"w": -100 / 1024})


def test_b40_a_stopped_process_finds_its_index_taken() -> None:
    """Design 6: fenced, it may come back, and not where another one lives."""
    with LocalCluster(1, presets={**EXACT, "steps": 0}) as cluster:
        stop = StopAt(cluster, 30)
        with Command(*light_process(cluster.addresses, rejoin=True, index=0)) as ghost:
            stop.await_stop(ghost)
            cluster.end_lease(0)
            cluster.history.until(lambda: bool(lost(cluster.history)))
            with Command(*light_process(cluster.addresses, index=0)) as heir:
                heir.until(r"^step \d+")
                ghost.process.send_signal(signal.SIGCONT)
                assert ghost.wait() == 4, ghost.text
                assert "index 0 is held by" in ghost.lines[-1]
                before = cluster.history.step
                cluster.history.until_step(before + 10)
        step, values = final_values(cluster.addresses)
    cluster.history.check()
    assert float(values["w"]) == -step / 1024


class StopAt:
    """Stops a process as soon as a step is applied: its answer is under way.

    To be made before the process, which may be there sooner than the test is told that it has started.
    """

    def __init__(self, cluster: LocalCluster, step: int) -> None:
        self._step = step
        self._process: SimpleQueue[Command] = SimpleQueue()
        self._stopped = threading.Event()
        cluster.history.hooks.append(self._carried_out)

    def await_stop(self, worker: Command) -> None:
        """Names the process; returns when it has been stopped."""
        self._process.put(worker)
        assert self._stopped.wait(DEADLINE), worker.text

    def _carried_out(self, shard: int, entry: Entry) -> None:
        if shard == 0 and isinstance(entry, Apply) and entry.step == self._step:
            self._process.get(timeout=DEADLINE).process.send_signal(signal.SIGSTOP)
            self._stopped.set()
