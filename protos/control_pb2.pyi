from grpc_ps.protos import coordination_pb2 as _coordination_pb2
from grpc_ps.protos import job_pb2 as _job_pb2
from grpc_ps.protos import parameter_server_pb2 as _parameter_server_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class StatusRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StatusResponse(_message.Message):
    __slots__ = ("run", "generation", "phase", "global_step", "job", "shards", "workers", "opened", "uptime_ms", "waiting_for", "learning_rate_factor", "learning_rate", "paused", "evaluation", "position", "exit_code", "reason", "checkpoint", "rollbacks", "job_number", "outcomes", "staleness_counts", "takes_jobs")
    class Phase(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        PHASE_UNSPECIFIED: _ClassVar[StatusResponse.Phase]
        PHASE_EMPTY: _ClassVar[StatusResponse.Phase]
        PHASE_OPENING: _ClassVar[StatusResponse.Phase]
        PHASE_RUNNING: _ClassVar[StatusResponse.Phase]
        PHASE_STOPPED: _ClassVar[StatusResponse.Phase]
        PHASE_RESTORING: _ClassVar[StatusResponse.Phase]
    PHASE_UNSPECIFIED: StatusResponse.Phase
    PHASE_EMPTY: StatusResponse.Phase
    PHASE_OPENING: StatusResponse.Phase
    PHASE_RUNNING: StatusResponse.Phase
    PHASE_STOPPED: StatusResponse.Phase
    PHASE_RESTORING: StatusResponse.Phase
    class OutcomesEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: int
        def __init__(self, key: _Optional[str] = ..., value: _Optional[int] = ...) -> None: ...
    RUN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    PHASE_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    SHARDS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    OPENED_FIELD_NUMBER: _ClassVar[int]
    UPTIME_MS_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FACTOR_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    ROLLBACKS_FIELD_NUMBER: _ClassVar[int]
    JOB_NUMBER_FIELD_NUMBER: _ClassVar[int]
    OUTCOMES_FIELD_NUMBER: _ClassVar[int]
    STALENESS_COUNTS_FIELD_NUMBER: _ClassVar[int]
    TAKES_JOBS_FIELD_NUMBER: _ClassVar[int]
    run: int
    generation: int
    phase: StatusResponse.Phase
    global_step: int
    job: _job_pb2.JobSpec
    shards: _containers.RepeatedCompositeFieldContainer[ShardStatus]
    workers: _containers.RepeatedCompositeFieldContainer[WorkerStatus]
    opened: int
    uptime_ms: int
    waiting_for: str
    learning_rate_factor: float
    learning_rate: float
    paused: bool
    evaluation: Evaluation
    position: int
    exit_code: int
    reason: str
    checkpoint: CheckpointStatus
    rollbacks: int
    job_number: int
    outcomes: _containers.ScalarMap[str, int]
    staleness_counts: _containers.RepeatedScalarFieldContainer[int]
    takes_jobs: bool
    def __init__(self, run: _Optional[int] = ..., generation: _Optional[int] = ..., phase: _Optional[_Union[StatusResponse.Phase, str]] = ..., global_step: _Optional[int] = ..., job: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., shards: _Optional[_Iterable[_Union[ShardStatus, _Mapping]]] = ..., workers: _Optional[_Iterable[_Union[WorkerStatus, _Mapping]]] = ..., opened: _Optional[int] = ..., uptime_ms: _Optional[int] = ..., waiting_for: _Optional[str] = ..., learning_rate_factor: _Optional[float] = ..., learning_rate: _Optional[float] = ..., paused: bool = ..., evaluation: _Optional[_Union[Evaluation, _Mapping]] = ..., position: _Optional[int] = ..., exit_code: _Optional[int] = ..., reason: _Optional[str] = ..., checkpoint: _Optional[_Union[CheckpointStatus, _Mapping]] = ..., rollbacks: _Optional[int] = ..., job_number: _Optional[int] = ..., outcomes: _Optional[_Mapping[str, int]] = ..., staleness_counts: _Optional[_Iterable[int]] = ..., takes_jobs: bool = ...) -> None: ...

class CheckpointStatus(_message.Message):
    __slots__ = ("directory", "global_step", "age_ms", "saving", "error", "restored_step")
    DIRECTORY_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    AGE_MS_FIELD_NUMBER: _ClassVar[int]
    SAVING_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    RESTORED_STEP_FIELD_NUMBER: _ClassVar[int]
    directory: str
    global_step: int
    age_ms: int
    saving: bool
    error: str
    restored_step: int
    def __init__(self, directory: _Optional[str] = ..., global_step: _Optional[int] = ..., age_ms: _Optional[int] = ..., saving: bool = ..., error: _Optional[str] = ..., restored_step: _Optional[int] = ...) -> None: ...

class Evaluation(_message.Message):
    __slots__ = ("global_step", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    global_step: int
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, global_step: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ShardStatus(_message.Message):
    __slots__ = ("shard", "address", "connected", "blocks", "value_bytes", "position", "times", "tables")
    SHARD_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    CONNECTED_FIELD_NUMBER: _ClassVar[int]
    BLOCKS_FIELD_NUMBER: _ClassVar[int]
    VALUE_BYTES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    shard: int
    address: str
    connected: bool
    blocks: int
    value_bytes: int
    position: int
    times: _coordination_pb2.ShardTimes
    tables: _containers.RepeatedCompositeFieldContainer[_coordination_pb2.TableHeld]
    def __init__(self, shard: _Optional[int] = ..., address: _Optional[str] = ..., connected: bool = ..., blocks: _Optional[int] = ..., value_bytes: _Optional[int] = ..., position: _Optional[int] = ..., times: _Optional[_Union[_coordination_pb2.ShardTimes, _Mapping]] = ..., tables: _Optional[_Iterable[_Union[_coordination_pb2.TableHeld, _Mapping]]] = ...) -> None: ...

class WorkerStatus(_message.Message):
    __slots__ = ("worker", "incarnation", "name", "local_step", "applied", "late", "non_finite", "done", "batch", "staleness", "silent_ms", "loss", "evaluator", "mean_staleness", "max_staleness", "activity", "times", "held_seconds", "applied_step")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    LOCAL_STEP_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    LATE_FIELD_NUMBER: _ClassVar[int]
    NON_FINITE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    MEAN_STALENESS_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    ACTIVITY_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    HELD_SECONDS_FIELD_NUMBER: _ClassVar[int]
    APPLIED_STEP_FIELD_NUMBER: _ClassVar[int]
    worker: int
    incarnation: int
    name: str
    local_step: int
    applied: int
    late: int
    non_finite: int
    done: int
    batch: int
    staleness: int
    silent_ms: int
    loss: float
    evaluator: bool
    mean_staleness: float
    max_staleness: int
    activity: str
    times: _parameter_server_pb2.WorkerTimes
    held_seconds: float
    applied_step: int
    def __init__(self, worker: _Optional[int] = ..., incarnation: _Optional[int] = ..., name: _Optional[str] = ..., local_step: _Optional[int] = ..., applied: _Optional[int] = ..., late: _Optional[int] = ..., non_finite: _Optional[int] = ..., done: _Optional[int] = ..., batch: _Optional[int] = ..., staleness: _Optional[int] = ..., silent_ms: _Optional[int] = ..., loss: _Optional[float] = ..., evaluator: bool = ..., mean_staleness: _Optional[float] = ..., max_staleness: _Optional[int] = ..., activity: _Optional[str] = ..., times: _Optional[_Union[_parameter_server_pb2.WorkerTimes, _Mapping]] = ..., held_seconds: _Optional[float] = ..., applied_step: _Optional[int] = ...) -> None: ...

class StopJobRequest(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class StopJobResponse(_message.Message):
    __slots__ = ("global_step",)
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    global_step: int
    def __init__(self, global_step: _Optional[int] = ...) -> None: ...

class SetRequest(_message.Message):
    __slots__ = ("mode", "workers", "backup", "min_workers", "max_staleness", "learning_rate_factor", "paused")
    MODE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    BACKUP_FIELD_NUMBER: _ClassVar[int]
    MIN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FACTOR_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    mode: str
    workers: int
    backup: int
    min_workers: int
    max_staleness: int
    learning_rate_factor: float
    paused: bool
    def __init__(self, mode: _Optional[str] = ..., workers: _Optional[int] = ..., backup: _Optional[int] = ..., min_workers: _Optional[int] = ..., max_staleness: _Optional[int] = ..., learning_rate_factor: _Optional[float] = ..., paused: bool = ...) -> None: ...

class SetResponse(_message.Message):
    __slots__ = ("global_step", "position", "settings", "learning_rate_factor", "paused")
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FACTOR_FIELD_NUMBER: _ClassVar[int]
    PAUSED_FIELD_NUMBER: _ClassVar[int]
    global_step: int
    position: int
    settings: _job_pb2.Settings
    learning_rate_factor: float
    paused: bool
    def __init__(self, global_step: _Optional[int] = ..., position: _Optional[int] = ..., settings: _Optional[_Union[_job_pb2.Settings, _Mapping]] = ..., learning_rate_factor: _Optional[float] = ..., paused: bool = ...) -> None: ...

class CheckpointRequest(_message.Message):
    __slots__ = ("wait_ms",)
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    wait_ms: int
    def __init__(self, wait_ms: _Optional[int] = ...) -> None: ...

class CheckpointResponse(_message.Message):
    __slots__ = ("global_step", "path")
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    PATH_FIELD_NUMBER: _ClassVar[int]
    global_step: int
    path: str
    def __init__(self, global_step: _Optional[int] = ..., path: _Optional[str] = ...) -> None: ...

class JobRequest(_message.Message):
    __slots__ = ("name", "model", "arguments", "options", "stated", "members")
    class OptionsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: str
        def __init__(self, key: _Optional[str] = ..., value: _Optional[str] = ...) -> None: ...
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    ARGUMENTS_FIELD_NUMBER: _ClassVar[int]
    OPTIONS_FIELD_NUMBER: _ClassVar[int]
    STATED_FIELD_NUMBER: _ClassVar[int]
    MEMBERS_FIELD_NUMBER: _ClassVar[int]
    name: str
    model: str
    arguments: _containers.RepeatedScalarFieldContainer[str]
    options: _containers.ScalarMap[str, str]
    stated: _job_pb2.Settings
    members: int
    def __init__(self, name: _Optional[str] = ..., model: _Optional[str] = ..., arguments: _Optional[_Iterable[str]] = ..., options: _Optional[_Mapping[str, str]] = ..., stated: _Optional[_Union[_job_pb2.Settings, _Mapping]] = ..., members: _Optional[int] = ...) -> None: ...

class SubmitJobRequest(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: JobRequest
    def __init__(self, job: _Optional[_Union[JobRequest, _Mapping]] = ...) -> None: ...

class SubmitJobResponse(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class ListJobsRequest(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class ListJobsResponse(_message.Message):
    __slots__ = ("jobs", "standing", "lost")
    JOBS_FIELD_NUMBER: _ClassVar[int]
    STANDING_FIELD_NUMBER: _ClassVar[int]
    LOST_FIELD_NUMBER: _ClassVar[int]
    jobs: _containers.RepeatedCompositeFieldContainer[JobStatus]
    standing: _containers.RepeatedCompositeFieldContainer[StandingWorker]
    lost: _containers.RepeatedCompositeFieldContainer[StandingWorker]
    def __init__(self, jobs: _Optional[_Iterable[_Union[JobStatus, _Mapping]]] = ..., standing: _Optional[_Iterable[_Union[StandingWorker, _Mapping]]] = ..., lost: _Optional[_Iterable[_Union[StandingWorker, _Mapping]]] = ...) -> None: ...

class StandingWorker(_message.Message):
    __slots__ = ("name", "carrying", "silent_ms", "failure", "failed")
    NAME_FIELD_NUMBER: _ClassVar[int]
    CARRYING_FIELD_NUMBER: _ClassVar[int]
    SILENT_MS_FIELD_NUMBER: _ClassVar[int]
    FAILURE_FIELD_NUMBER: _ClassVar[int]
    FAILED_FIELD_NUMBER: _ClassVar[int]
    name: str
    carrying: int
    silent_ms: int
    failure: str
    failed: int
    def __init__(self, name: _Optional[str] = ..., carrying: _Optional[int] = ..., silent_ms: _Optional[int] = ..., failure: _Optional[str] = ..., failed: _Optional[int] = ...) -> None: ...

class JobStatus(_message.Message):
    __slots__ = ("number", "name", "model", "state", "run", "global_step", "steps", "exit_code", "reason", "submitted_ms", "started_ms", "ended_ms", "workers", "loss", "batches", "examples", "running_ms", "evaluation", "waiting_for", "generation")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[JobStatus.State]
        STATE_QUEUED: _ClassVar[JobStatus.State]
        STATE_STARTING: _ClassVar[JobStatus.State]
        STATE_RUNNING: _ClassVar[JobStatus.State]
        STATE_DONE: _ClassVar[JobStatus.State]
        STATE_FAILED: _ClassVar[JobStatus.State]
        STATE_CANCELLED: _ClassVar[JobStatus.State]
    STATE_UNSPECIFIED: JobStatus.State
    STATE_QUEUED: JobStatus.State
    STATE_STARTING: JobStatus.State
    STATE_RUNNING: JobStatus.State
    STATE_DONE: JobStatus.State
    STATE_FAILED: JobStatus.State
    STATE_CANCELLED: JobStatus.State
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    MODEL_FIELD_NUMBER: _ClassVar[int]
    STATE_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    SUBMITTED_MS_FIELD_NUMBER: _ClassVar[int]
    STARTED_MS_FIELD_NUMBER: _ClassVar[int]
    ENDED_MS_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    BATCHES_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    RUNNING_MS_FIELD_NUMBER: _ClassVar[int]
    EVALUATION_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    number: int
    name: str
    model: str
    state: JobStatus.State
    run: int
    global_step: int
    steps: int
    exit_code: int
    reason: str
    submitted_ms: int
    started_ms: int
    ended_ms: int
    workers: int
    loss: float
    batches: int
    examples: int
    running_ms: int
    evaluation: Evaluation
    waiting_for: str
    generation: int
    def __init__(self, number: _Optional[int] = ..., name: _Optional[str] = ..., model: _Optional[str] = ..., state: _Optional[_Union[JobStatus.State, str]] = ..., run: _Optional[int] = ..., global_step: _Optional[int] = ..., steps: _Optional[int] = ..., exit_code: _Optional[int] = ..., reason: _Optional[str] = ..., submitted_ms: _Optional[int] = ..., started_ms: _Optional[int] = ..., ended_ms: _Optional[int] = ..., workers: _Optional[int] = ..., loss: _Optional[float] = ..., batches: _Optional[int] = ..., examples: _Optional[int] = ..., running_ms: _Optional[int] = ..., evaluation: _Optional[_Union[Evaluation, _Mapping]] = ..., waiting_for: _Optional[str] = ..., generation: _Optional[int] = ...) -> None: ...

class CancelJobRequest(_message.Message):
    __slots__ = ("number",)
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    number: int
    def __init__(self, number: _Optional[int] = ...) -> None: ...

class CancelJobResponse(_message.Message):
    __slots__ = ("job",)
    JOB_FIELD_NUMBER: _ClassVar[int]
    job: JobStatus
    def __init__(self, job: _Optional[_Union[JobStatus, _Mapping]] = ...) -> None: ...

class AwaitJobRequest(_message.Message):
    __slots__ = ("nonce", "name", "wait_ms", "carrying", "ended", "leaving", "run", "call")
    NONCE_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    CARRYING_FIELD_NUMBER: _ClassVar[int]
    ENDED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    CALL_FIELD_NUMBER: _ClassVar[int]
    nonce: int
    name: str
    wait_ms: int
    carrying: int
    ended: Carried
    leaving: bool
    run: int
    call: int
    def __init__(self, nonce: _Optional[int] = ..., name: _Optional[str] = ..., wait_ms: _Optional[int] = ..., carrying: _Optional[int] = ..., ended: _Optional[_Union[Carried, _Mapping]] = ..., leaving: bool = ..., run: _Optional[int] = ..., call: _Optional[int] = ...) -> None: ...

class Carried(_message.Message):
    __slots__ = ("number", "run", "exit_code", "reason", "part")
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    PART_FIELD_NUMBER: _ClassVar[int]
    number: int
    run: int
    exit_code: int
    reason: str
    part: int
    def __init__(self, number: _Optional[int] = ..., run: _Optional[int] = ..., exit_code: _Optional[int] = ..., reason: _Optional[str] = ..., part: _Optional[int] = ...) -> None: ...

class AwaitJobResponse(_message.Message):
    __slots__ = ("job", "number", "run", "over", "closing", "exit_code", "reason", "lease_ms", "recovery_ms")
    JOB_FIELD_NUMBER: _ClassVar[int]
    NUMBER_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    OVER_FIELD_NUMBER: _ClassVar[int]
    CLOSING_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_MS_FIELD_NUMBER: _ClassVar[int]
    job: JobRequest
    number: int
    run: int
    over: bool
    closing: bool
    exit_code: int
    reason: str
    lease_ms: int
    recovery_ms: int
    def __init__(self, job: _Optional[_Union[JobRequest, _Mapping]] = ..., number: _Optional[int] = ..., run: _Optional[int] = ..., over: bool = ..., closing: bool = ..., exit_code: _Optional[int] = ..., reason: _Optional[str] = ..., lease_ms: _Optional[int] = ..., recovery_ms: _Optional[int] = ...) -> None: ...
