"""Clipping and decay in a real cluster: the bits are those of the rules alone, whatever lies between."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack
from itertools import cycle
from typing import Any

import numpy as np
import pytest
from flaky_link import FlakyLink
from light_worker import Outcome, final_values, run_worker, run_workers
from local_cluster import LocalCluster
from updated_shards import UpdatedShards

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Apply, Entry, Reduce

STEPS = 6
SMALL = {"a": (300,), "b": (20, 30), "c": ()}
# Above what runs on the event loop: reduce and apply go to the thread.
LARGE = {"a": (350, 500), "b": (150_000,)}
RATE = 0.25


def gradient_of(shapes: Mapping[str, tuple[int, ...]], batch: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(batch)
    return {name: np.asarray(rng.normal(size=shape), np.float32) for name, shape in shapes.items()}


def trained(
    shapes: Mapping[str, tuple[int, ...]], workers: int, addresses: Any, **join: Any
) -> tuple[int, dict[str, np.ndarray]]:
    """Trains with gradients that follow from the batch number alone; returns the final step and values."""
    specs = [ParameterSpec(name=name, shape=shape, dtype="float32") for name, shape in shapes.items()]

    def gradient(worker: int, batch: int, values: Mapping[str, np.ndarray]) -> tuple[dict[str, np.ndarray], int]:
        return gradient_of(shapes, batch), 1 + batch % 3

    def work(number: int) -> Outcome:
        return run_worker(addresses, specs, gradient, initial=gradient_of(shapes, 1000), **join)

    done = run_workers(workers, work)
    ends = [outcome.last for outcome in done]
    assert sum(outcome.outcomes["APPLIED"] for outcome in done) == workers * STEPS, ends
    return done[0].global_step, done[0].parameters


def expected(shapes: Mapping[str, tuple[int, ...]], workers: int, **stated: Any) -> dict[str, bytes]:
    """The same by the rules alone, on one shard: rounds of consecutive batches, weighted by their examples."""
    rules = UpdatedShards(gradient_of(shapes, 1000), 1, learning_rate=RATE, **stated)
    for step in range(STEPS):
        batches = range(step * workers, (step + 1) * workers)
        examples = [1 + batch % 3 for batch in batches]
        weights = [float(np.float32(count / sum(examples))) for count in examples]
        rules.update([gradient_of(shapes, batch) for batch in batches], weights, RATE)
    return {name: array.tobytes() for name, array in rules.values().items()}


CLIPS = [{"global_clip_norm": 2.0}, {"clip_norm": 1.5}, {"clip_value": 0.1}, {"clip_norm": 1.5, "weight_decay": 0.1}]


@pytest.mark.parametrize("stated", CLIPS, ids=[" ".join(clip) for clip in CLIPS])
@pytest.mark.parametrize(("workers", "shards"), [(1, 1), (1, 3), (3, 1), (3, 2)])
def test_a_cluster_clips_and_decays_by_the_rules(stated: dict[str, float], workers: int, shards: int) -> None:
    """Rounds of one by the squares that came with the push, rounds of several by `reduce`."""
    presets = {"mode": "sync", "workers": workers, "steps": STEPS, "learning_rate": RATE, "optimizer": "momentum"}
    with LocalCluster(shards, presets={**presets, **stated}) as cluster:
        _, values = trained(SMALL, workers, cluster.addresses)
        assert cluster.wait_ended() == [None] * shards
    rules = expected(SMALL, workers, optimizer="momentum", **stated)
    assert {name: array.tobytes() for name, array in values.items()} == rules
    assert rules != expected(SMALL, workers, optimizer="momentum")


@pytest.mark.parametrize("chunk_bytes", [16 * 1024, 1 << 20])
def test_large_rounds_are_reduced_in_the_thread(chunk_bytes: int) -> None:
    stated = {"global_clip_norm": 2.0}
    presets = {"mode": "sync", "workers": 2, "steps": STEPS, "learning_rate": RATE, **stated}
    with LocalCluster(2, presets=presets, chunk_bytes=chunk_bytes) as cluster:
        _, values = trained(LARGE, 2, cluster.addresses)
        assert cluster.wait_ended() == [None, None]
    assert {name: array.tobytes() for name, array in values.items()} == expected(LARGE, 2, **stated)


@pytest.mark.parametrize("shapes", [SMALL, LARGE], ids=["small", "large"])
def test_a_link_that_breaks_between_reduce_and_apply_costs_nothing(shapes: Mapping[str, tuple[int, ...]]) -> None:
    """A mean is made once, and told until it is applied.

    The link is cut in the middle of each `reduce`, of the report that follows and of each `apply`, after more and more
    bytes; none of them is as short as that.
    """
    stated = {"global_clip_norm": 2.0}
    presets = {"mode": "sync", "workers": 2, "steps": STEPS, "learning_rate": RATE, **stated}
    with ExitStack() as stack:
        links: list[FlakyLink] = []

        def through_link(address: str) -> str:
            links.append(stack.enter_context(FlakyLink(address)))
            return links[0].address

        cluster = stack.enter_context(
            LocalCluster(2, presets=presets, limits=Limits(link=10.0), lead_seen_as=through_link)
        )
        sizes = cycle(range(1, 40, 7))

        def cut(shard: int, entry: Entry) -> None:
            if isinstance(entry, Reduce) or (isinstance(entry, Apply) and shard == 0):
                links[0].cut_after(next(sizes), to_client=shard == 0)

        cluster.history.hooks.append(cut)
        _, values = trained(shapes, 2, cluster.addresses)
        assert cluster.wait_ended() == [None, None]
        assert links[0].cuts >= 3 * STEPS
    assert {name: array.tobytes() for name, array in values.items()} == expected(shapes, 2, **stated)


def test_in_async_every_push_is_clipped_by_its_own_norm() -> None:
    presets = {"steps": STEPS, "learning_rate": RATE, "global_clip_norm": 2.0}
    with LocalCluster(2, presets=presets) as cluster:
        trained(SMALL, 1, cluster.addresses)
        assert cluster.wait_ended() == [None, None]
    with LocalCluster(2, presets={**presets, "steps": 0}) as cluster:
        specs = [ParameterSpec(name=name, shape=shape, dtype="float32") for name, shape in SMALL.items()]
        huge = {name: np.full(shape, 1e30, np.float32) for name, shape in SMALL.items()}
        run_worker(cluster.addresses, specs, lambda *_: (huge, 1), pushes=1)
        step, values = final_values(cluster.addresses)
    norm = np.sqrt(sum(float((array.astype(np.float64) ** 2).sum()) for array in values.values()))
    assert step == 1
    assert norm == pytest.approx(RATE * 2.0, rel=1e-6)
