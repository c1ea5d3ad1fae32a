"""Links that break at every stage of a push: nothing half-applied, nothing lost, nothing twice."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any

import numpy as np
import pytest
from breaking import STAGES, Breaker
from flaky_link import FlakyLink, links_between_shards, links_to
from history import wait_for
from light_worker import Outcome, run_worker, run_workers
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.psserver.lead.log import Dismiss, Entry

LR = 2.0**-10
# Cut into blocks that lie on both shards, several chunks on each.
LARGE = [ParameterSpec(name="w", shape=(300, 700), dtype="float32")]
CHUNK = 1 << 15
PUSHES = 2 * len(STAGES)


@contextmanager
def cluster_with_links(mode: str) -> Iterator[tuple[LocalCluster, FlakyLink, list[FlakyLink]]]:
    """Two shards; the link between them, and those of worker 0 to each."""
    presets = {"mode": mode, "workers": 2, "learning_rate": LR, "steps": PUSHES if mode == "sync" else 0}
    with ExitStack() as stack:
        through_link, between = stack.enter_context(links_between_shards())
        cluster = stack.enter_context(LocalCluster(2, presets=presets, lead_seen_as=through_link, chunk_bytes=CHUNK))
        yield cluster, between[0], stack.enter_context(links_to(cluster.addresses))


def train(cluster: LocalCluster, links: list[FlakyLink], breaker: Breaker, mode: str) -> list[Outcome]:
    """Two workers, of which the first arms the breaker for another stage at each of its pushes."""
    addresses = [",".join(link.address for link in links), cluster.addresses]
    rounds = iter(STAGES * 2)

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        # All of the model is of one step: a mixture, or half an update, would show.
        (value,) = np.unique(parameters["w"])
        assert value == np.float32(round(float(value) / -LR) * -LR)
        if worker == 0:
            breaker.arm(next(rounds, ""))
        return {"w": np.ones_like(parameters["w"])}, 1

    done = run_workers(2, lambda number: run_worker(addresses[number], LARGE, gradient, index=number, pushes=PUSHES))
    if mode == "async":
        with PSClient(cluster.addresses, timeout=20.0) as client:
            client.stop()
    assert cluster.wait_ended() == [None, None]
    return done


def check(cluster: LocalCluster, done: list[Outcome], breaker: Breaker, mode: str) -> None:
    history = cluster.history
    assert breaker.fired == list(STAGES * 2)
    history.wait_equal()
    if mode == "sync":
        history.check_rounds(lambda update: 2)
    history.check()
    steps = PUSHES if mode == "sync" else 2 * PUSHES
    assert [len(updates) for updates in history.updates] == [steps, steps]
    assert [dict(outcome.outcomes) for outcome in done] == [{"APPLIED": PUSHES}] * 2
    last = max(done, key=lambda outcome: outcome.global_step)
    assert last.global_step == steps
    assert np.unique(last.parameters["w"]).tolist() == [-steps * LR]


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("shard", [0, 1])
def test_a_workers_link_breaks_at_every_stage_of_a_push(mode: str, shard: int) -> None:
    """After the header, half of the bytes, all of them, the update, the answer."""
    with cluster_with_links(mode) as (cluster, _, links):
        breaker = Breaker(cluster, shard, links[shard].cut, worker=0)
        done = train(cluster, links, breaker, mode)
        assert links[shard].cuts >= len(STAGES)
    check(cluster, done, breaker, mode)


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("shard", [0, 1])
def test_the_link_between_shards_breaks_at_every_stage_of_a_push(mode: str, shard: int) -> None:
    """The stages as the lead sees them, and as its follower does."""
    with cluster_with_links(mode) as (cluster, between, links):
        breaker = Breaker(cluster, shard, between.cut)
        done = train(cluster, links, breaker, mode)
        assert between.cuts >= len(STAGES)
    check(cluster, done, breaker, mode)


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_all_links_break_at_every_stage_of_a_push(mode: str) -> None:
    with cluster_with_links(mode) as (cluster, between, links):

        def cut() -> None:
            for link in (between, *links):
                link.cut()

        breaker = Breaker(cluster, 1, cut, worker=0)
        done = train(cluster, links, breaker, mode)
    check(cluster, done, breaker, mode)


def test_answers_cut_in_the_middle_are_sent_again() -> None:
    """Each answer of shard 1 is cut after another part of its bytes: the worker never sees half a release."""
    with cluster_with_links("sync") as (cluster, _, links):
        part = cluster.servers[1]._replay
        places = iter(range(1, PUSHES + 1))

        def cut() -> None:
            total = sum(block.nbytes for block in part.plan.values.blocks) if part.plan else 0
            links[1].cut_after(max(1, total * next(places) // (PUSHES + 1)), to_client=True)

        breaker = Breaker(cluster, 1, cut, worker=0)

        def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
            assert len(np.unique(parameters["w"])) == 1
            if worker == 0:
                breaker.arm("applied")
            return {"w": np.ones_like(parameters["w"])}, 1

        addresses = [",".join(link.address for link in links), cluster.addresses]
        done = run_workers(2, lambda number: run_worker(addresses[number], LARGE, gradient, index=number))
        assert cluster.wait_ended() == [None, None]
        assert links[1].cuts >= PUSHES - 1
        # What was staged is freed once nobody can need it any more.
        wait_for(lambda: all(server._replay.staging.bytes() == 0 for server in cluster.servers), "staging to be freed")
    cluster.history.check_rounds(lambda update: 2)
    assert [np.unique(outcome.parameters["w"]).tolist() for outcome in done] == [[-PUSHES * LR]] * 2


def test_a_follower_whose_link_breaks_at_the_end_is_told_all_the_same() -> None:
    """The link is down when the last worker leaves: the lead stays until its follower has come back and knows."""
    with cluster_with_links("sync") as (cluster, between, _):

        def cut(shard: int, entry: Entry) -> None:
            if shard == 0 and isinstance(entry, Dismiss):
                between.cut()

        cluster.history.hooks.append(cut)
        ones = {"w": np.ones(LARGE[0].shape, np.float32)}
        run_workers(2, lambda _: run_worker(cluster.addresses, LARGE, lambda *_: (ones, 1)))
        assert cluster.wait_ended() == [None, None]
