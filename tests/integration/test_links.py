"""Links between shards break and come back; stray messages leave nothing behind."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator

import grpc
import numpy as np
import pytest
from flaky_link import FlakyLink
from light_worker import constant, final_values, run_worker, scalar
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.protos.coordination_pb2 import FollowRequest, Hello
from grpc_ps.protos.coordination_pb2_grpc import CoordinationStub
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.training_stream import TrainingStream

PARAMETERS = [scalar("w"), scalar("v")]
PRESETS = {"learning_rate": 2.0**-10}


@contextlib.contextmanager
def cuttable(limits: Limits) -> Iterator[tuple[LocalCluster, FlakyLink]]:
    """Two shards whose link can be cut."""
    links: list[FlakyLink] = []

    def through_link(address: str) -> str:
        links.append(FlakyLink(address).__enter__())
        return links[0].address

    try:
        with LocalCluster(2, presets=PRESETS, limits=limits, lead_seen_as=through_link) as cluster:
            yield cluster, links[0]
    finally:
        for link in links:
            link.__exit__(None, None, None)


def test_a_link_that_was_quiet_for_longer_than_its_timeout_is_made_again() -> None:
    with cuttable(Limits(link=20.0)) as (cluster, link):
        run_worker(cluster.addresses, PARAMETERS, constant(1.0), pushes=5)

        follower = cluster.servers[1]._link
        assert follower is not None
        # As if it had been up, without a word, for longer than this test has time.
        follower._last_up -= 100.0
        link.cut()
        run_worker(cluster.addresses, PARAMETERS, constant(1.0), pushes=5)
        step, values = final_values(cluster.addresses)
    assert (step, float(values["w"]), float(values["v"])) == (10, -10 / 1024, -10 / 1024)


def test_an_old_link_that_ends_does_not_end_the_new_one() -> None:
    """One follower, two calls: when the first ends, the second still gets the log."""
    with LocalCluster(1, presets=PRESETS) as cluster:
        lead = cluster.servers[0]
        lead._coordinator.job.shards.count = 2  # type: ignore[union-attr]  # its follower is played by hand
        with grpc.insecure_channel(lead.address) as channel:
            stub = CoordinationStub(channel)
            hello = FollowRequest(
                hello=Hello(
                    protocol=1, shard=1, shard_count=2, boot=7, address="by-hand", chunk_bytes=lead.config.chunk_bytes
                )
            )
            links = []
            for _ in range(2):
                links.append(stub.Follow(_held([hello])))
                assert next(links[-1]).HasField("welcome")
            links[0].cancel()
            with PSClient(lead.address) as client:
                assert [shard.connected for shard in client.status().shards] == [True, True]
            links[1].cancel()


def _held(requests: list[FollowRequest]) -> Iterator[FollowRequest]:
    """Sends requests and leaves the stream open until it is cancelled."""
    yield from requests
    import threading

    threading.Event().wait(20)


@pytest.mark.parametrize("sequence", [0, 7])
def test_a_stray_push_spoils_nothing_for_the_next_worker(sequence: int) -> None:
    """A push with a number that cannot be is refused, and the index is as good as new."""
    with LocalCluster(1, presets=PRESETS) as cluster:
        with PSClient(cluster.addresses, timeout=10.0) as client:
            session = client.join("test", [scalar()])
            session.open({"w": np.zeros((), np.float32)})
            session.begin()
            session._exchange._sequence = sequence - 1
            session.send({"w": np.ones((), np.float32)}, 1)
        done = run_worker(cluster.addresses, [scalar()], constant(1.0), pushes=4)
        step, values = final_values(cluster.addresses)
    assert dict(done.outcomes) == {"APPLIED": 4}
    assert (step, float(values["w"])) == (4, -4 / 1024)


def test_pushes_that_race_with_leaving_spoil_nothing() -> None:
    with LocalCluster(1, presets=PRESETS) as cluster:
        applied = 0
        for _ in range(10):
            with PSClient(cluster.addresses, timeout=10.0) as client:
                session = client.join("test", [scalar()])
                if session.opener:
                    session.open({"w": np.zeros((), np.float32)})
                session.begin()
                # Sent and left at once: it may still count, or not.
                session.send({"w": np.ones((), np.float32)}, 1)
            done = run_worker(cluster.addresses, [scalar()], constant(1.0), pushes=2)
            assert dict(done.outcomes) == {"APPLIED": 2}
            applied += 2
        step, values = final_values(cluster.addresses)
    assert applied <= step <= applied + 10
    assert float(values["w"]) == -step / 1024


def test_an_answer_finds_a_stream_whose_greeting_is_still_under_way(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker asks as soon as it is greeted: on a shard that goes on only then, the answer must not be lost."""
    greet = TrainingStream._greet
    answered = []

    async def slowly(stream: TrainingStream) -> None:
        await greet(stream)
        # Before the opening this shard has to read on: the answer follows from what it is sent.
        if stream._coordinator is None and stream._replay.opened:
            await asyncio.wait_for(stream._session._filled.wait(), 30)
            answered.append(stream)

    monkeypatch.setattr(TrainingStream, "_greet", slowly)
    with LocalCluster(2, presets=PRESETS) as cluster:
        for _ in range(3):
            done = run_worker(cluster.addresses, PARAMETERS, constant(1.0), pushes=3)
            assert dict(done.outcomes) == {"APPLIED": 3}
    assert len(answered) == 2
