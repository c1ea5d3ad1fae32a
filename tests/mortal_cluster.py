"""A local cluster without checkpoints whose shards can be killed and started again."""

from __future__ import annotations

import asyncio

from local_cluster import LocalCluster

from grpc_ps.psserver.config import ShardConfig
from grpc_ps.psserver.server import ShardServer


class Mortal(LocalCluster):
    """Two shards, either of which can lose its life, and have another one with the same command."""

    async def restart(self, shard: int) -> None:
        """What `kill -9` and the same command leave: the links cut, the port taken again, nothing in memory."""
        old = self.servers[shard]
        self.ended[shard].cancel()
        await asyncio.gather(self.ended[shard], return_exceptions=True)
        lead = "" if shard == 0 else self.servers[0].address
        port = int(old.address.rpartition(":")[2])
        config = ShardConfig(shard=shard, shards=2, lead=lead, port=port, limits=self._limits, **self._config)
        new = ShardServer(config)
        await new.start()
        self.servers[shard] = new
        self.ended[shard] = asyncio.ensure_future(new.run())
