"""The state of a cluster as the lead tells it: `control.proto`'s StatusResponse as plain objects."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from google.protobuf.message import Message

from grpc_ps.client.settings import Setting, from_message
from grpc_ps.protos import control_pb2


@dataclass(frozen=True, kw_only=True)
class ShardStatus:
    """One shard; `value_bytes` and `blocks` are what is placed on it, `position` the last log entry it acknowledged."""

    shard: int
    address: str
    connected: bool
    blocks: int
    value_bytes: int
    position: int


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """One member: its pushes by outcome, the batch it holds, and milliseconds since its last heartbeat."""

    worker: int
    incarnation: int
    name: str
    local_step: int
    applied: int
    late: int
    non_finite: int
    done: int
    batch: int | None
    staleness: int
    silent_ms: int
    loss: float | None
    evaluator: bool


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """A cluster at one moment.

    Attributes:
        phase: empty, opening, running or stopped.
        model: its name; empty before the job is open, like `settings`.
        settings: what holds for all processes, by the names of `job.proto`.
        opened: initialisations of the model so far.
        waiting_for: what the job waits for, for people; empty while it runs.
    """

    run: int
    generation: int
    phase: str
    global_step: int
    model: str
    settings: Mapping[str, Setting]
    shards: tuple[ShardStatus, ...]
    workers: tuple[WorkerStatus, ...]
    opened: int
    uptime_ms: int
    waiting_for: str

    def to_dict(self) -> dict[str, Any]:
        """Returns it as plain values for JSON."""
        return asdict(self)


def cluster_status(response: control_pb2.StatusResponse) -> ClusterStatus:
    """Converts the lead's answer."""
    phase = control_pb2.StatusResponse.Phase.Name(response.phase)
    return ClusterStatus(
        run=response.run,
        generation=response.generation,
        phase=phase.removeprefix("PHASE_").lower(),
        global_step=response.global_step,
        model=response.job.model,
        settings=from_message(response.job.settings),
        shards=tuple(ShardStatus(**_fields(shard)) for shard in response.shards),
        workers=tuple(WorkerStatus(**_fields(worker)) for worker in response.workers),
        opened=response.opened,
        uptime_ms=response.uptime_ms,
        waiting_for=response.waiting_for,
    )


def _fields(message: Message) -> dict[str, Any]:
    """Returns all fields of a flat message; an optional one that is absent is None."""
    fields = message.DESCRIPTOR.fields
    return {
        field.name: None if field.has_presence and not message.HasField(field.name) else getattr(message, field.name)
        for field in fields
    }
