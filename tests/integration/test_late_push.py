"""A push whose round is closed while it is on its way, by clients on real servers."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
import pytest
from history import wait_for
from local_cluster import LocalCluster

from grpc_ps.client import PSClient, TrainingSession
from grpc_ps.client.shared.blocks import ParameterSpec

ELEMENTS = 4 << 20
SPECS = [ParameterSpec(name="w", shape=(ELEMENTS,), dtype="float32")]
CHUNK = 64 << 10
MESSAGES = ELEMENTS * 4 // CHUNK


def joined(client: PSClient) -> TrainingSession:
    session = client.join("late", SPECS)
    if session.opener:
        session.open({"w": np.zeros(ELEMENTS, np.float32)})
    session.begin()
    return session


def count_sent(session: TrainingSession, *, until_heard: bool = False) -> list[int]:
    """Counts the messages that the session's streams send from now on.

    With `until_heard` the last quarter is kept back until the lead's answer is here, as on a slow line.
    """
    sent: list[int] = []
    links = session._exchange.connection.links
    assert links is not None
    lead = links.streams[0]

    def counted(send: Callable[[bytes], None], message: bytes) -> None:
        if until_heard and len(sent) >= MESSAGES * 3 // 4:
            wait_for(lambda: lead.peek() is not None, "the lead's answer")
        sent.append(len(message))
        send(message)

    for stream in links.streams:
        send = partial(type(stream).send, stream)  # without those who counted before
        stream.send = partial(counted, send)  # type: ignore[method-assign]
    return sent


@pytest.mark.parametrize("shards", [1, 2])
def test_late_push_of_many_messages_is_not_sent_to_its_end(shards: int) -> None:
    """Its worker hears LATE with the new parameters while it sends, and the pushes after it are whole again."""
    presets = {"mode": "sync", "workers": 1, "backup": 1, "learning_rate": 1.0, "optimizer": "sgd", "steps": 10**6}
    gradient = {"w": np.full(ELEMENTS, -1.0, np.float32)}
    cluster = LocalCluster(shards, presets=presets, chunk_bytes=CHUNK)
    with cluster, PSClient(cluster.addresses) as one, PSClient(cluster.addresses) as other:
        fast, slow = joined(one), joined(other)
        for step in (1, 3, 5):
            assert one.push(gradient).outcome == "APPLIED"
            sent = count_sent(slow, until_heard=True)
            slow.send(gradient, 1)
            assert len(sent) < MESSAGES
            late = slow.wait()
            assert (late.outcome, late.global_step) == ("LATE", step)
            assert np.array_equal(slow.parameters["w"], np.full(ELEMENTS, step, np.float32))
            # Now it is the other way round.
            sent = count_sent(slow)
            slow.send(gradient, 1)
            assert slow.wait().outcome == "APPLIED"
            assert len(sent) >= MESSAGES
            assert one.push(gradient).outcome == "LATE"
        assert np.array_equal(fast.parameters["w"], slow.parameters["w"])
        pulled = one.pull()
    assert pulled.global_step == 6
    assert np.array_equal(pulled.values["w"], np.full(ELEMENTS, 6, np.float32))
