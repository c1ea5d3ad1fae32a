"""Data without random access: each worker has a share of its own, and they are used up at different times."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from light_worker import DEADLINE
from local_cluster import LocalCluster
from real_worker import train, train_in

from grpc_ps.client.shared.errors import DataError
from grpc_ps.models import Batch, DataBundle, ModelDefaults
from grpc_ps.models.linear import Linear


class Shares:
    """Share i has as many batches as the i-th number says, of points on y = 0.1 x + 0.3, each longer than the last.

    All begin together: a job may be over before its last worker has come.
    """

    examples = 0
    fingerprint = "shares"

    def __init__(self, counts: Sequence[int], fails_in: int | None = None) -> None:
        self.counts = counts
        self.fails_in = fails_in
        self._together = threading.Barrier(len(counts))

    def batches(self, batch_size: int, seed: int, share: int) -> Iterable[Batch]:
        return self._draw(np.random.default_rng([seed, share]), batch_size, share)

    def _draw(self, generator: np.random.Generator, batch_size: int, share: int) -> Iterator[Batch]:
        self._together.wait(DEADLINE)
        for number in range(self.counts[share]):
            x = generator.random(batch_size + number, dtype=np.float32)
            yield x, np.float32(0.1) * x + np.float32(0.3)
        if share == self.fails_in:
            raise RuntimeError("the tape is torn")


class Taped(Linear):
    """A line whose points come from a generator."""

    defaults = ModelDefaults(optimizer="sgd", learning_rate=0.1, batch_size=4, steps=10**6)

    def __init__(self, shares: Shares) -> None:
        super().__init__()
        self._shares = shares

    def data(self, directory: Path | None) -> DataBundle:  # type: ignore[override]
        return DataBundle(train=self._shares, test=None, description="a tape")


def taped(*counts: int, fails_in: int | None = None) -> list[Callable[[], Taped]]:
    """What makes the models of that many workers."""
    shares = Shares(counts, fails_in)
    return [lambda: Taped(shares)] * len(counts)


@pytest.mark.parametrize("shards", [1, 2])
@pytest.mark.parametrize(("mode", "steps"), [("async", 3), ("sync", 2)])
def test_b28_generators_of_two_one_and_no_batches(mode: str, steps: int, shards: int) -> None:
    """Fault B28: the last worker with data goes on alone, and all end well: a round needs who still has data."""
    trained = train(taped(2, 1, 0), shards=shards, mode=mode)
    pushes = sorted((one.summary["worker"], one.summary["outcomes"]) for one in trained)
    assert pushes == [(0, {"APPLIED": 2}), (1, {"APPLIED": 1}), (2, {})]
    assert {one.read.global_step for one in trained} == {steps}
    assert {one.summary["global_step"] for one in trained} == {steps}


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_generators_without_any_batch(mode: str) -> None:
    for one in train(taped(0, 0), mode=mode):
        assert (one.summary["global_step"], one.summary["outcomes"]) == (0, {})


@pytest.mark.parametrize("mode", ["async", "sync"])
def test_the_last_step_ends_a_job_whose_generators_go_on(mode: str) -> None:
    trained = train(taped(10**9, 10**9, 1), mode=mode, steps=40)
    assert {one.read.global_step for one in trained} == {40}
    of_one_batch = next(one for one in trained if one.summary["worker"] == 2).summary["outcomes"]
    if mode == "sync":  # every round needs all three
        assert of_one_batch == {"APPLIED": 1}
    else:  # the others may make all 40 steps while it computes
        assert sum(one.summary["outcomes"].get("APPLIED", 0) for one in trained) == 40
        assert of_one_batch in ({"APPLIED": 1}, {"DONE": 1})


def test_a_generator_that_fails_ends_its_worker_and_no_other() -> None:
    with LocalCluster(presets={"mode": "async"}) as cluster:
        trained = train_in(cluster, taped(5, 2, fails_in=1))
        good = [one for one in trained if one.error is None]
        (bad,) = [one.error for one in trained if one.error is not None]
        assert isinstance(bad, DataError)
        says = (
            r"^the data 'shares' failed at batch 2 of share 1: RuntimeError: the tape is torn "
            r"\(test_generators.py, line \d+\)$"
        )
        with pytest.raises(DataError, match=says):
            raise bad
        assert [one.summary["outcomes"] for one in good] == [{"APPLIED": 5}]
        assert cluster.wait_ended() == [None]


def test_every_batch_of_every_share_is_used_once_by_workers_that_overlap() -> None:
    with LocalCluster(2, presets={"workers": 2}) as cluster:
        trained = train_in(cluster, taped(7, 12), overlap=True)
        assert [one.error for one in trained] == [None, None]
        assert cluster.wait_ended() == [None, None]
    shares: dict[int, list[int]] = {0: [], 1: []}
    for update in cluster.history.updates[0]:
        for used in update.pushes:
            shares[used.push.worker].append(used.examples)
    # The first batch of a share has four examples, each later one another more.
    assert shares == {0: list(range(4, 11)), 1: list(range(4, 16))}
