"""A shard that cannot carry out its log ends, and the job with it: nobody waits for what cannot come."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest
from flaky_link import FlakyLink, links_between_shards
from history import wait_for
from local_cluster import LocalCluster

from grpc_ps.client import PSClient
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.errors import JobFailed, PsError, UsageError
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.link import Link
from grpc_ps.psserver.round_updates import INLINE_BYTES

# Of two parameters one lies on each of two shards.
SIZES = {"on-the-loop": 300, "in-the-thread": INLINE_BYTES // 4 + 16}


def no_kernel(*arguments: Any) -> Any:
    raise RuntimeError("no kernel")


def end_of_training(cluster: LocalCluster, size: int) -> tuple[int, str]:
    """What a worker is told that pushes until it is over: exit code and reason."""
    shape = (size,)
    with PSClient(cluster.addresses, timeout=20.0) as client:
        session = client.join("test", [ParameterSpec(name=name, shape=shape, dtype="float32") for name in "wv"])
        session.open({name: np.zeros(shape, np.float32) for name in "wv"})
        try:
            reply = session.begin()
            while not reply.done:
                reply = client.push({name: np.ones(shape, np.float32) for name in "wv"}, 1)
        except PsError as error:
            return error.exit_code, str(error)
    return reply.exit_code, reply.reason


@pytest.mark.parametrize("size", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("shard", [0, 1])
def test_a_kernel_that_fails_ends_the_job(size: int, shard: int) -> None:
    with LocalCluster(2, presets={"steps": 3}, limits=Limits(link=0.5)) as cluster:
        useless = cluster.servers[shard]
        useless._replay._updates.apply = no_kernel  # type: ignore[method-assign]
        told = end_of_training(cluster, size)
        ended = cluster.wait_ended()
    name = f"shard {shard} ({useless.address})"
    failed, other = ended[shard], ended[1 - shard]
    assert isinstance(failed, JobFailed)
    assert str(failed) == f"{name} failed: RuntimeError: no kernel"
    assert isinstance(failed.__cause__, RuntimeError)
    assert isinstance(other, JobFailed)
    assert (other.exit_code, name in str(other)) == (4, True)
    assert (told[0], name in told[1]) == (4, True)


def test_a_job_that_a_shard_cannot_carry_out_ends_so_though_the_link_breaks_at_that_word(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tell, losing = Link.unable, []

    def lose(link: FlakyLink, cuts: int) -> None:
        link.cut()
        wait_for(lambda: link.cuts > cuts, "the cut")
        link.release()

    def unable(link: Link, *what: Any) -> None:
        links[0].hold(to_client=False)
        tell(link, *what)
        losing.append(threading.Thread(target=lose, args=(links[0], links[0].cuts)))
        losing[0].start()

    def beyond(*arguments: Any) -> Any:
        raise UsageError("the table is full")

    monkeypatch.setattr(Link, "unable", unable)
    with (
        links_between_shards() as (through_link, links),
        LocalCluster(2, presets={"steps": 3}, lead_seen_as=through_link) as cluster,
    ):
        cluster.servers[1]._replay._updates.apply = beyond  # type: ignore[method-assign]
        told = end_of_training(cluster, 4)
        ended = cluster.wait_ended()
        losing[0].join()
    name = f"shard 1 ({cluster.servers[1].address})"
    assert told == (2, f"{name} failed: the table is full")
    assert [getattr(one, "exit_code", None) for one in ended] == [2, 2]


def test_a_decision_that_fails_ends_the_job() -> None:
    """Half of it may be taken: the lead must not go on, and nobody may wait for it."""
    with LocalCluster(2, presets={"steps": 3}, limits=Limits(link=0.5)) as cluster:
        lead = cluster.servers[0]
        assert lead._coordinator is not None
        lead._coordinator.job.intake._decide = no_kernel  # type: ignore[method-assign]
        told = end_of_training(cluster, 4)
        failed, other = cluster.wait_ended()
    assert str(failed) == f"shard 0 ({lead.address}) failed: RuntimeError: no kernel"
    assert isinstance(other, JobFailed)
    assert (other.exit_code, told[0]) == (4, 4)
