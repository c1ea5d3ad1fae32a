"""Newcomers that wait cost the lead nothing."""

from __future__ import annotations

import asyncio

from local_cluster import LocalCluster

from grpc_ps.psserver.lead.joining import JoinReply, JoinRequest
from grpc_ps.psserver.lead.settings import Signature

REQUEST = {
    "name": "host:1",
    "index": None,
    "run": 0,
    "shard_count": 1,
    "model": "test",
    "parameters": {"w": Signature("w", (), "float32", True)},
    "stated": {"steps": 10},
    "defaults": {},
}


def test_waiting_newcomers_do_not_wake_each_other() -> None:
    """Twenty wait for the opener's values; each looks again when something has happened, or twice a second."""
    looks = 0
    with LocalCluster(1) as cluster:
        lead = cluster.servers[0]._coordinator
        assert lead is not None
        join = lead.job.join

        def counted(request: JoinRequest, now: float) -> JoinReply:
            nonlocal looks
            looks += 1
            return join(request, now)

        lead.job.join = counted  # type: ignore[method-assign]

        async def all_wait() -> list[JoinReply]:
            requests = [JoinRequest(nonce=nonce, **REQUEST) for nonce in range(1, 22)]  # type: ignore[arg-type]
            opener = await lead.reception.join(requests[0], 0.0)
            assert opener.state == "OPENER"
            return await asyncio.gather(*(lead.reception.join(request, 1.0) for request in requests[1:]))

        replies = cluster.call(all_wait())
    assert [reply.state for reply in replies] == ["WAITING"] * 20
    assert looks < 1 + 20 * 10
