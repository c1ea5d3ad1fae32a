"""Where the time of a cluster goes, made of what workers, shards and the lead have counted. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass

from grpc_ps.client.status import ClusterStatus, ShardStatus, WorkerStatus


@dataclass(frozen=True, kw_only=True)
class StepShares:
    """A mean step of a worker, in milliseconds.

    Attributes:
        input, compute, encode: the worker's own work.
        wire: what is left of its wait: the network, gRPC, and other workers' bytes and updates before its own.
        shard: staging its push, applying and answering, on the shard that takes longest.
        wait: until it was released to go on: for its round, or for slower workers.
    """

    input: float
    compute: float
    encode: float
    wire: float
    shard: float
    wait: float


@dataclass(frozen=True, kw_only=True)
class ShardShares:
    """A shard's mean push (`stage`), update (`apply`) and release (`encode`), in milliseconds."""

    stage: float
    apply: float
    encode: float


@dataclass(frozen=True)
class Shares:
    """What is known of the workers, by index, and of the shards, by number; whoever has told nothing is left out."""

    workers: Mapping[int, StepShares]
    shards: Mapping[int, ShardShares]


def shares(now: ClusterStatus, since: ClusterStatus | None = None) -> Shares:
    """Divides the times of a reading, or what came to them since an earlier one if anything did.

    A worker measures only the sum of `wire`, `shard` and `wait`. The last two are means of what the shards and the lead
    have counted, so they may be a little more or less than what this worker's pushes took.
    """
    shards = {shard.shard: shard for shard in since.shards} if since else {}
    lives = {worker.incarnation: worker for worker in since.workers} if since else {}
    of_shards = {it.shard: row for it in now.shards if (row := _shard_shares(it, shards.get(it.shard)))}
    longest = max((sum(asdict(row).values()) for row in of_shards.values()), default=0.0)
    steps = {it.worker: _step_shares(it, lives.get(it.incarnation), longest) for it in now.workers}
    of_workers = {worker: step for worker, step in steps.items() if step is not None}
    return Shares(of_workers, of_shards)


def _shard_shares(shard: ShardStatus, since: ShardStatus | None) -> ShardShares | None:
    passed = _passed(shard, since)
    if not passed.get("pushes"):
        return None
    return ShardShares(
        stage=_mean_ms(passed["stage"], passed["pushes"]),
        apply=_mean_ms(passed["apply"], passed["updates"]),
        encode=_mean_ms(passed["encode"], passed["releases"]),
    )


def _step_shares(worker: WorkerStatus, since: WorkerStatus | None, shard_ms: float) -> StepShares | None:
    passed = _passed(worker, since)
    steps = passed.get("steps")
    if not steps:
        return None
    exchange = _mean_ms(passed["answer"] + passed["receive"], steps)
    wait = min(exchange, _held_ms(worker, since))
    shard = min(exchange - wait, shard_ms)
    return StepShares(
        input=_mean_ms(passed["input"], steps),
        compute=_mean_ms(passed["compute"], steps),
        encode=_mean_ms(passed["encode"], steps),
        wire=exchange - wait - shard,
        shard=shard,
        wait=wait,
    )


def _passed(now: ShardStatus | WorkerStatus, since: ShardStatus | WorkerStatus | None) -> dict[str, float]:
    """What came to the times; all of them where nothing did, or they began anew in between."""
    times = asdict(now.times) if now.times is not None else {}
    before = asdict(since.times) if since is not None and since.times is not None else {}
    passed = {name: value - before.get(name, 0) for name, value in times.items()}
    return passed if min(passed.values(), default=0) >= 0 < max(passed.values(), default=0) else times


def _held_ms(worker: WorkerStatus, since: WorkerStatus | None) -> float:
    """The mean wait of a push; the first one of a life does not count."""
    if since is None or _pushes(since) >= _pushes(worker):
        return _mean_ms(worker.held_seconds, _pushes(worker) - 1)
    return _mean_ms(worker.held_seconds - since.held_seconds, _pushes(worker) - max(_pushes(since), 1))


def _pushes(worker: WorkerStatus) -> int:
    return worker.applied + worker.late + worker.non_finite + worker.done


def _mean_ms(seconds: float, count: float) -> float:
    return seconds * 1000 / count if count > 0 else 0.0
