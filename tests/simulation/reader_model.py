"""How a worker reads what shards answer: of one that lags behind the others, until the answers make a reply."""

from __future__ import annotations

from collections.abc import Sequence

from simulation.stream import Stream

from grpc_ps.client.answers import Answers, Reply


def read(answers: Answers, streams: Sequence[Stream], versions: list[int]) -> Reply | None:
    """Reads what has arrived; None if the next answer has not.

    Args:
        versions: those of the values on each shard, which a release replaces.
    """
    reply = None
    while reply is None:
        shard = answers.lagging()
        inbox = streams[shard].inbox
        if not inbox:
            return None
        answer, version = inbox.popleft()
        if answer.release is not None:
            versions[shard] = version
        reply = answers.add(shard, answer)
    return reply
