"""A shard that comes back empty ends the job, where no checkpoint is kept: nobody goes on with other values."""

from __future__ import annotations

import asyncio

import numpy as np
import pytest
from light_worker import scalar
from mortal_cluster import Mortal

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import JobFailed, NotOpen, PsError

BOTH = [scalar("w"), scalar("v")]
ONES = {spec.name: np.ones((), np.float32) for spec in BOTH}


@pytest.mark.parametrize("killed", [1, 0])
def test_b50_a_shard_that_comes_back_empty_ends_the_job(killed: int) -> None:
    """Fault B50: two shards, no checkpoint folder, one of them starts anew at step 30: exit 4, and the reason."""
    with Mortal(2, grace_seconds=1.0) as cluster:
        with PSClient(cluster.addresses, timeout=20.0) as client:
            session = client.join("test", BOTH)
            session.open({spec.name: np.zeros((), np.float32) for spec in BOTH})
            session.begin()
            for _ in range(30):
                client.push(ONES)
            cluster.call(cluster.restart(killed))
            told = end_of_training(client)
        assert told[0] == 4
        if killed == 1:
            ended = cluster.wait_ended()
            assert all(isinstance(one, PsError) and one.exit_code == 4 for one in ended)
            reason = "shard 1 lost its state and no checkpoint is configured"
            assert all(reason in text for text in (told[1], *map(str, ended)))
        else:
            # The lead's successor cannot know of that job, and is no second one of it: it waits for a first worker.
            lost = cluster.call(asyncio.wait_for(asyncio.gather(cluster.ended[1], return_exceptions=True), 20))[0]
            assert isinstance(lost, JobFailed)
            assert (lost.exit_code, "lost its state and no checkpoint is configured" in str(lost)) == (4, True)
            with PSClient(cluster.addresses, timeout=5.0) as reader, pytest.raises(NotOpen):
                reader.pull()


def end_of_training(client: PSClient) -> tuple[int, str]:
    """What a worker is told that goes on until it is over: exit code and reason."""
    try:
        while not (reply := client.push(ONES)).done:
            pass
    except PsError as error:
        return error.exit_code, str(error)
    return reply.exit_code, reply.reason
