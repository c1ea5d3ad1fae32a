"""The state of a cluster as the lead tells it: `control.proto`'s StatusResponse as plain objects."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from google.protobuf.message import Message

from grpc_ps.client.settings import Setting, from_message
from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.codec import from_proto
from grpc_ps.client.shared.newest_loss import newest_loss
from grpc_ps.protos import control_pb2


@dataclass(frozen=True, kw_only=True)
class ShardTimes:
    """Where a shard's time went, in seconds since its start, and what it was spent on.

    Attributes:
        stage: taking in the chunks of `pushes`.
        apply: carrying out `updates`.
        encode: making the messages of answers, of which `releases` had parameters.
    """

    pushes: int
    stage: float
    updates: int
    apply: float
    releases: int
    encode: float


@dataclass(frozen=True, kw_only=True)
class WorkerTimes:
    """Where the time of a worker's steps went, in seconds; the first step is left out.

    Attributes:
        steps: how many these are.
        input: getting batches ready.
        compute: gradients.
        encode: sending, until gRPC had all of a push.
        answer: waiting for the first message of each answer.
        receive: taking the rest of the answers.
    """

    steps: int
    input: float
    compute: float
    encode: float
    answer: float
    receive: float


@dataclass(frozen=True, kw_only=True)
class TableStatus:
    """What a shard holds of a table: of a lazy one the rows that were updated, of any other all of this shard's.

    `capacity` is how many rows it may come to hold, 0 for all; `bytes` are those of values and slots.
    """

    name: str
    rows: int
    capacity: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class ShardStatus:
    """One shard; `value_bytes` and `blocks` are what is placed on it, `position` the last log entry it acknowledged.

    `times` is None before it has told; `tables` are in order of their names, none before.
    """

    shard: int
    address: str
    connected: bool
    blocks: int
    value_bytes: int
    position: int
    times: ShardTimes | None = None
    tables: tuple[TableStatus, ...] = ()


@dataclass(frozen=True, kw_only=True)
class WorkerStatus:
    """One member: its pushes by outcome, the batch it holds, and milliseconds since its last heartbeat.

    `staleness` is that of its last applied push, in updates; `mean_staleness` and `max_staleness` are over all of them.
    `applied_step` is the global step that this push made, None before the first; `loss` is that of its batch, as the
    worker last told.
    `activity` says for people what it does. `times` is None before it has told; `held_seconds` is the time that its
    pushes from the second one on were whole before it was released to go on.
    """

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
    mean_staleness: float = 0.0
    max_staleness: int = 0
    activity: str = ""
    times: WorkerTimes | None = None
    held_seconds: float = 0.0
    applied_step: int | None = None


@dataclass(frozen=True, kw_only=True)
class Evaluation:
    """The metrics, by name, of the model after so many updates."""

    global_step: int
    metrics: Mapping[str, float]


@dataclass(frozen=True, kw_only=True)
class CheckpointStatus:
    """The checkpoints of a job whose shards have a folder for them.

    Attributes:
        directory: the folder, as the lead names it.
        global_step: of the newest committed one, None before the first; `age_ms` is the time since it was committed.
        saving: whether one is being written.
        error: why the last attempt failed; empty if it did not.
        restored_step: global step of the checkpoint that the job went on from last; None if it began anew.
    """

    directory: str
    global_step: int | None = None
    age_ms: int = 0
    saving: bool = False
    error: str = ""
    restored_step: int | None = None


@dataclass(frozen=True, kw_only=True)
class ClusterStatus:
    """A cluster at one moment.

    Attributes:
        phase: empty, opening, running, restoring (the shards return to a checkpoint) or stopped.
        model: its name; empty before the job is open, like `settings`.
        settings: what holds for all processes, by the names of `job.proto`.
        opened: initialisations of the model so far.
        waiting_for: what the job waits for, for people; empty while it runs.
        learning_rate: that of the next update, `learning_rate_factor` (which `PSClient.set` changes) included.
        paused: whether nobody gets work.
        evaluation: the newest one; None before the first.
        position: last entry of the lead's log.
        exit_code: what the job ended with, and `reason`, why if that is not just its target; set when stopped.
        checkpoint: the job's checkpoints; None where the shards have no folder for them.
        rollbacks: times that the job went back to a checkpoint since the lead started.
        job_number: its number in the lead's queue; 0 for a job that a worker brought.
        takes_jobs: whether clients may submit jobs.
        outcomes: pushes by outcome, also of workers that have gone; from zero again behind a rollback.
            `staleness_counts` are those applied by staleness: of 0, 1, 2-3, 4-7 and so on, each range twice as long.
        parameters: what the model has, and `plan_fingerprint` the placement of that; empty before the job is open.
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
    learning_rate_factor: float = 1.0
    learning_rate: float = 0.0
    paused: bool = False
    evaluation: Evaluation | None = None
    position: int = 0
    exit_code: int = 0
    reason: str = ""
    checkpoint: CheckpointStatus | None = None
    rollbacks: int = 0
    job_number: int = 0
    takes_jobs: bool = False
    parameters: tuple[ParameterSpec, ...] = ()
    plan_fingerprint: str = ""
    outcomes: Mapping[str, int] = field(default_factory=dict)
    staleness_counts: tuple[int, ...] = ()

    @property
    def loss(self) -> float | None:
        """The mean loss of the workers' newest applied pushes, as `client.shared.newest_loss` says."""
        return newest_loss((worker.loss, worker.applied_step) for worker in self.workers)

    def to_dict(self) -> dict[str, Any]:
        """Returns plain values for JSON, None for what is not finite; without the parameters, which do not change."""
        record: dict[str, Any] = _finite({**asdict(replace(self, parameters=())), "loss": self.loss})
        del record["parameters"]
        return record


def _finite(value: Any) -> Any:
    """JSON has no NaN and no infinities."""
    if isinstance(value, Mapping):
        return {key: _finite(item) for key, item in value.items()}
    if isinstance(value, (tuple, list)):
        return [_finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


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
        shards=tuple(map(_shard, response.shards)),
        workers=tuple(WorkerStatus(**_timed(worker, WorkerTimes)) for worker in response.workers),
        opened=response.opened,
        uptime_ms=response.uptime_ms,
        waiting_for=response.waiting_for,
        learning_rate_factor=response.learning_rate_factor,
        learning_rate=response.learning_rate,
        paused=response.paused,
        evaluation=_evaluation(response),
        position=response.position,
        exit_code=response.exit_code,
        reason=response.reason,
        checkpoint=CheckpointStatus(**_fields(response.checkpoint)) if response.HasField("checkpoint") else None,
        rollbacks=response.rollbacks,
        job_number=response.job_number,
        takes_jobs=response.takes_jobs,
        parameters=tuple(map(from_proto, response.job.parameters)),
        plan_fingerprint=response.job.plan_fingerprint,
        outcomes=dict(response.outcomes),
        staleness_counts=tuple(response.staleness_counts),
    )


@dataclass(frozen=True, kw_only=True)
class Saved:
    """A checkpoint that was asked for and is committed: its global step, and its folder as the lead names it."""

    global_step: int
    path: str


def _evaluation(response: control_pb2.StatusResponse) -> Evaluation | None:
    if not response.HasField("evaluation"):
        return None
    return Evaluation(global_step=response.evaluation.global_step, metrics=dict(response.evaluation.metrics))


def _shard(message: control_pb2.ShardStatus) -> ShardStatus:
    tables = tuple(TableStatus(**_fields(table)) for table in message.tables)
    return ShardStatus(**{**_timed(message, ShardTimes), "tables": tables})


def _timed(message: Message, times: type[Any]) -> dict[str, Any]:
    """Returns all fields of a message, which is flat but for its `times`."""
    fields = _fields(message)
    told = fields["times"]
    return {**fields, "times": None if told is None else times(**_fields(told))}


def _fields(message: Message) -> dict[str, Any]:
    """Returns all fields of a flat message; an optional one that is absent is None."""
    fields = message.DESCRIPTOR.fields
    return {
        field.name: None if field.has_presence and not message.HasField(field.name) else getattr(message, field.name)
        for field in fields
    }
