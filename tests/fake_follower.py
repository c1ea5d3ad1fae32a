"""A follower without a shard: it says on its link to the lead what a test wants."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
from local_cluster import LocalCluster
from raw_worker import RawStream

from grpc_ps.protos import coordination_pb2 as wire

FOLLOW = "/grpc_ps.v1.Coordination/Follow"


class LeadAlone(LocalCluster):
    """Shard 0 of a job of two shards; the other one is the test's."""

    def __init__(self, **config: Any) -> None:
        super().__init__(2, **config)

    def __enter__(self) -> LeadAlone:
        self._thread.start()
        self.call(self._start(0))
        return self

    def position(self) -> int:
        """The last entry of the log."""
        coordinator = self.servers[0]._coordinator
        assert coordinator is not None
        job = coordinator.job

        async def look() -> int:
            return job.log.position

        return self.call(look())

    def alive(self) -> bool:
        """Whether no decision has failed and the job goes on."""
        server = self.servers[0]
        assert server._coordinator is not None
        return not server._failure.done() and server._coordinator.job.done is None


class FakeFollower:
    """Shard 1, as far as the lead can see.

    Attributes:
        position: the last entry that came.
    """

    def __init__(self, lead: str, chunk_bytes: int) -> None:
        self._channel = grpc.insecure_channel(lead)
        self._chunk_bytes = chunk_bytes
        self.position = 0
        self.generation = 0

    def close(self) -> None:
        self._channel.close()

    def hello(self, **other: Any) -> wire.FollowRequest:
        fields = {
            "protocol": 1,
            "shard": 1,
            "shard_count": 2,
            "boot": 7,
            "address": "fake:1",
            "position": self.position,
            "generation": self.generation,
            "chunk_bytes": self._chunk_bytes,
            **other,
        }
        return wire.FollowRequest(hello=wire.Hello(**fields))

    def connect(self, timeout: float = 20.0) -> Link:
        """A link that the lead has welcomed."""
        link = self.open(timeout)
        link.send(self.hello())
        welcome = link.read().welcome
        self.generation = welcome.generation
        return link

    def open(self, timeout: float = 20.0) -> Link:
        """A link on which nothing was said."""
        return Link(RawStream(self._channel, FOLLOW, timeout), self)


class Link:
    """One call of `Follow`."""

    def __init__(self, stream: RawStream, follower: FakeFollower) -> None:
        self._stream = stream
        self._follower = follower

    def send(self, *messages: wire.FollowRequest | bytes) -> None:
        self._stream.send(*(it if isinstance(it, bytes) else it.SerializeToString() for it in messages))

    def read(self) -> wire.FollowResponse:
        """The next message; the follower has its entries."""
        response = wire.FollowResponse.FromString(next(self._stream._call))
        if response.entries:
            self._follower.position = response.entries[-1].position
        return response

    def refusal(self) -> tuple[grpc.StatusCode, str, str]:
        """How the lead ends the link."""
        said = self._stream.refusal()
        self._stream.end()
        return said

    def end(self) -> None:
        """Half-closes the link."""
        self._stream.end()

    def cancel(self) -> None:
        self._stream.cancel()


def run_in_loop(cluster: LocalCluster, work: Any) -> Any:
    """Calls a function on the cluster's loop."""

    async def call() -> Any:
        await asyncio.sleep(0)
        return work()

    return cluster.call(call())
