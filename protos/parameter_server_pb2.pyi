from grpc_ps.protos import job_pb2 as _job_pb2
from grpc_ps.protos import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf.internal import enum_type_wrapper as _enum_type_wrapper
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Outcome(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
    __slots__ = ()
    OUTCOME_UNSPECIFIED: _ClassVar[Outcome]
    OUTCOME_APPLIED: _ClassVar[Outcome]
    OUTCOME_LATE: _ClassVar[Outcome]
    OUTCOME_NON_FINITE: _ClassVar[Outcome]
    OUTCOME_DONE: _ClassVar[Outcome]
OUTCOME_UNSPECIFIED: Outcome
OUTCOME_APPLIED: Outcome
OUTCOME_LATE: Outcome
OUTCOME_NON_FINITE: Outcome
OUTCOME_DONE: Outcome

class JoinRequest(_message.Message):
    __slots__ = ("protocol", "nonce", "index", "shard_count", "job", "stated", "defaults", "name", "wait_ms", "run")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    NONCE_FIELD_NUMBER: _ClassVar[int]
    INDEX_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    STATED_FIELD_NUMBER: _ClassVar[int]
    DEFAULTS_FIELD_NUMBER: _ClassVar[int]
    NAME_FIELD_NUMBER: _ClassVar[int]
    WAIT_MS_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    nonce: int
    index: int
    shard_count: int
    job: _job_pb2.JobSpec
    stated: _job_pb2.Settings
    defaults: _job_pb2.Settings
    name: str
    wait_ms: int
    run: int
    def __init__(self, protocol: _Optional[int] = ..., nonce: _Optional[int] = ..., index: _Optional[int] = ..., shard_count: _Optional[int] = ..., job: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., stated: _Optional[_Union[_job_pb2.Settings, _Mapping]] = ..., defaults: _Optional[_Union[_job_pb2.Settings, _Mapping]] = ..., name: _Optional[str] = ..., wait_ms: _Optional[int] = ..., run: _Optional[int] = ...) -> None: ...

class JoinResponse(_message.Message):
    __slots__ = ("state", "id", "job", "waiting_for", "global_step", "lease_ms", "chunk_bytes", "exit_code", "reason", "recovery_ms")
    class State(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        STATE_UNSPECIFIED: _ClassVar[JoinResponse.State]
        STATE_WAITING: _ClassVar[JoinResponse.State]
        STATE_OPENER: _ClassVar[JoinResponse.State]
        STATE_MEMBER: _ClassVar[JoinResponse.State]
        STATE_DONE: _ClassVar[JoinResponse.State]
    STATE_UNSPECIFIED: JoinResponse.State
    STATE_WAITING: JoinResponse.State
    STATE_OPENER: JoinResponse.State
    STATE_MEMBER: JoinResponse.State
    STATE_DONE: JoinResponse.State
    STATE_FIELD_NUMBER: _ClassVar[int]
    ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    WAITING_FOR_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    LEASE_MS_FIELD_NUMBER: _ClassVar[int]
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    RECOVERY_MS_FIELD_NUMBER: _ClassVar[int]
    state: JoinResponse.State
    id: _job_pb2.Identity
    job: _job_pb2.JobSpec
    waiting_for: str
    global_step: int
    lease_ms: int
    chunk_bytes: int
    exit_code: int
    reason: str
    recovery_ms: int
    def __init__(self, state: _Optional[_Union[JoinResponse.State, str]] = ..., id: _Optional[_Union[_job_pb2.Identity, _Mapping]] = ..., job: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., waiting_for: _Optional[str] = ..., global_step: _Optional[int] = ..., lease_ms: _Optional[int] = ..., chunk_bytes: _Optional[int] = ..., exit_code: _Optional[int] = ..., reason: _Optional[str] = ..., recovery_ms: _Optional[int] = ...) -> None: ...

class HeartbeatRequest(_message.Message):
    __slots__ = ("id", "local_step", "loss", "times")
    ID_FIELD_NUMBER: _ClassVar[int]
    LOCAL_STEP_FIELD_NUMBER: _ClassVar[int]
    LOSS_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    id: _job_pb2.Identity
    local_step: int
    loss: float
    times: WorkerTimes
    def __init__(self, id: _Optional[_Union[_job_pb2.Identity, _Mapping]] = ..., local_step: _Optional[int] = ..., loss: _Optional[float] = ..., times: _Optional[_Union[WorkerTimes, _Mapping]] = ...) -> None: ...

class WorkerTimes(_message.Message):
    __slots__ = ("steps", "input", "compute", "encode", "answer", "receive")
    STEPS_FIELD_NUMBER: _ClassVar[int]
    INPUT_FIELD_NUMBER: _ClassVar[int]
    COMPUTE_FIELD_NUMBER: _ClassVar[int]
    ENCODE_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    RECEIVE_FIELD_NUMBER: _ClassVar[int]
    steps: int
    input: float
    compute: float
    encode: float
    answer: float
    receive: float
    def __init__(self, steps: _Optional[int] = ..., input: _Optional[float] = ..., compute: _Optional[float] = ..., encode: _Optional[float] = ..., answer: _Optional[float] = ..., receive: _Optional[float] = ...) -> None: ...

class HeartbeatResponse(_message.Message):
    __slots__ = ("global_step", "done", "exit_code", "reason", "evaluator")
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    EVALUATOR_FIELD_NUMBER: _ClassVar[int]
    global_step: int
    done: bool
    exit_code: int
    reason: str
    evaluator: bool
    def __init__(self, global_step: _Optional[int] = ..., done: bool = ..., exit_code: _Optional[int] = ..., reason: _Optional[str] = ..., evaluator: bool = ...) -> None: ...

class ReportRequest(_message.Message):
    __slots__ = ("id", "global_step", "metrics")
    class MetricsEntry(_message.Message):
        __slots__ = ("key", "value")
        KEY_FIELD_NUMBER: _ClassVar[int]
        VALUE_FIELD_NUMBER: _ClassVar[int]
        key: str
        value: float
        def __init__(self, key: _Optional[str] = ..., value: _Optional[float] = ...) -> None: ...
    ID_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    METRICS_FIELD_NUMBER: _ClassVar[int]
    id: _job_pb2.Identity
    global_step: int
    metrics: _containers.ScalarMap[str, float]
    def __init__(self, id: _Optional[_Union[_job_pb2.Identity, _Mapping]] = ..., global_step: _Optional[int] = ..., metrics: _Optional[_Mapping[str, float]] = ...) -> None: ...

class ReportResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class LeaveRequest(_message.Message):
    __slots__ = ("id",)
    ID_FIELD_NUMBER: _ClassVar[int]
    id: _job_pb2.Identity
    def __init__(self, id: _Optional[_Union[_job_pb2.Identity, _Mapping]] = ...) -> None: ...

class LeaveResponse(_message.Message):
    __slots__ = ()
    def __init__(self) -> None: ...

class PushPullRequest(_message.Message):
    __slots__ = ("attach", "header", "ask", "end", "chunk")
    ATTACH_FIELD_NUMBER: _ClassVar[int]
    HEADER_FIELD_NUMBER: _ClassVar[int]
    ASK_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    attach: Attach
    header: PushHeader
    ask: Ask
    end: bool
    chunk: _tensor_pb2.Chunk
    def __init__(self, attach: _Optional[_Union[Attach, _Mapping]] = ..., header: _Optional[_Union[PushHeader, _Mapping]] = ..., ask: _Optional[_Union[Ask, _Mapping]] = ..., end: bool = ..., chunk: _Optional[_Union[_tensor_pb2.Chunk, _Mapping]] = ...) -> None: ...

class Attach(_message.Message):
    __slots__ = ("id", "job")
    ID_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    id: _job_pb2.Identity
    job: _job_pb2.JobSpec
    def __init__(self, id: _Optional[_Union[_job_pb2.Identity, _Mapping]] = ..., job: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ...) -> None: ...

class PushHeader(_message.Message):
    __slots__ = ("id", "sequence", "kind", "base_step", "batch", "examples", "total_bytes", "position", "rows", "wanted_rows", "wanted_batch")
    class Kind(int, metaclass=_enum_type_wrapper.EnumTypeWrapper):
        __slots__ = ()
        KIND_UNSPECIFIED: _ClassVar[PushHeader.Kind]
        KIND_GRADIENTS: _ClassVar[PushHeader.Kind]
        KIND_VALUES: _ClassVar[PushHeader.Kind]
        KIND_RESIDUAL: _ClassVar[PushHeader.Kind]
        KIND_WANTS: _ClassVar[PushHeader.Kind]
    KIND_UNSPECIFIED: PushHeader.Kind
    KIND_GRADIENTS: PushHeader.Kind
    KIND_VALUES: PushHeader.Kind
    KIND_RESIDUAL: PushHeader.Kind
    KIND_WANTS: PushHeader.Kind
    ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    KIND_FIELD_NUMBER: _ClassVar[int]
    BASE_STEP_FIELD_NUMBER: _ClassVar[int]
    BATCH_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    WANTED_ROWS_FIELD_NUMBER: _ClassVar[int]
    WANTED_BATCH_FIELD_NUMBER: _ClassVar[int]
    id: _job_pb2.Identity
    sequence: int
    kind: PushHeader.Kind
    base_step: int
    batch: int
    examples: int
    total_bytes: int
    position: int
    rows: _containers.RepeatedScalarFieldContainer[int]
    wanted_rows: _containers.RepeatedScalarFieldContainer[int]
    wanted_batch: int
    def __init__(self, id: _Optional[_Union[_job_pb2.Identity, _Mapping]] = ..., sequence: _Optional[int] = ..., kind: _Optional[_Union[PushHeader.Kind, str]] = ..., base_step: _Optional[int] = ..., batch: _Optional[int] = ..., examples: _Optional[int] = ..., total_bytes: _Optional[int] = ..., position: _Optional[int] = ..., rows: _Optional[_Iterable[int]] = ..., wanted_rows: _Optional[_Iterable[int]] = ..., wanted_batch: _Optional[int] = ...) -> None: ...

class Ask(_message.Message):
    __slots__ = ("id", "sequence", "out_of_data")
    ID_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OUT_OF_DATA_FIELD_NUMBER: _ClassVar[int]
    id: _job_pb2.Identity
    sequence: int
    out_of_data: bool
    def __init__(self, id: _Optional[_Union[_job_pb2.Identity, _Mapping]] = ..., sequence: _Optional[int] = ..., out_of_data: bool = ...) -> None: ...

class PushPullResponse(_message.Message):
    __slots__ = ("attached", "answer", "end", "chunk")
    ATTACHED_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    attached: Attached
    answer: Answer
    end: bool
    chunk: _tensor_pb2.Chunk
    def __init__(self, attached: _Optional[_Union[Attached, _Mapping]] = ..., answer: _Optional[_Union[Answer, _Mapping]] = ..., end: bool = ..., chunk: _Optional[_Union[_tensor_pb2.Chunk, _Mapping]] = ...) -> None: ...

class Attached(_message.Message):
    __slots__ = ("boot", "whole_sequence", "residual_bytes")
    BOOT_FIELD_NUMBER: _ClassVar[int]
    WHOLE_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    RESIDUAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    boot: int
    whole_sequence: int
    residual_bytes: int
    def __init__(self, boot: _Optional[int] = ..., whole_sequence: _Optional[int] = ..., residual_bytes: _Optional[int] = ...) -> None: ...

class ResidualRequest(_message.Message):
    __slots__ = ("position", "applied")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    APPLIED_FIELD_NUMBER: _ClassVar[int]
    position: int
    applied: int
    def __init__(self, position: _Optional[int] = ..., applied: _Optional[int] = ...) -> None: ...

class Answer(_message.Message):
    __slots__ = ("generation", "incarnation", "position", "global_step", "result", "release", "done", "residual")
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    RESULT_FIELD_NUMBER: _ClassVar[int]
    RELEASE_FIELD_NUMBER: _ClassVar[int]
    DONE_FIELD_NUMBER: _ClassVar[int]
    RESIDUAL_FIELD_NUMBER: _ClassVar[int]
    generation: int
    incarnation: int
    position: int
    global_step: int
    result: PushResult
    release: Release
    done: Done
    residual: ResidualRequest
    def __init__(self, generation: _Optional[int] = ..., incarnation: _Optional[int] = ..., position: _Optional[int] = ..., global_step: _Optional[int] = ..., result: _Optional[_Union[PushResult, _Mapping]] = ..., release: _Optional[_Union[Release, _Mapping]] = ..., done: _Optional[_Union[Done, _Mapping]] = ..., residual: _Optional[_Union[ResidualRequest, _Mapping]] = ...) -> None: ...

class PushResult(_message.Message):
    __slots__ = ("sequence", "outcome", "repeated", "staleness", "parameter")
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    OUTCOME_FIELD_NUMBER: _ClassVar[int]
    REPEATED_FIELD_NUMBER: _ClassVar[int]
    STALENESS_FIELD_NUMBER: _ClassVar[int]
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    sequence: int
    outcome: Outcome
    repeated: bool
    staleness: int
    parameter: str
    def __init__(self, sequence: _Optional[int] = ..., outcome: _Optional[_Union[Outcome, str]] = ..., repeated: bool = ..., staleness: _Optional[int] = ..., parameter: _Optional[str] = ...) -> None: ...

class Release(_message.Message):
    __slots__ = ("batch", "hint", "total_bytes", "rows")
    BATCH_FIELD_NUMBER: _ClassVar[int]
    HINT_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    batch: int
    hint: int
    total_bytes: int
    rows: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, batch: _Optional[int] = ..., hint: _Optional[int] = ..., total_bytes: _Optional[int] = ..., rows: _Optional[_Iterable[int]] = ...) -> None: ...

class Done(_message.Message):
    __slots__ = ("exit_code", "reason")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    reason: str
    def __init__(self, exit_code: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class PullRequest(_message.Message):
    __slots__ = ("snapshot", "averages", "table", "ids", "keep", "shard_count")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    AVERAGES_FIELD_NUMBER: _ClassVar[int]
    TABLE_FIELD_NUMBER: _ClassVar[int]
    IDS_FIELD_NUMBER: _ClassVar[int]
    KEEP_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    snapshot: int
    averages: bool
    table: str
    ids: bytes
    keep: bool
    shard_count: int
    def __init__(self, snapshot: _Optional[int] = ..., averages: bool = ..., table: _Optional[str] = ..., ids: _Optional[bytes] = ..., keep: bool = ..., shard_count: _Optional[int] = ...) -> None: ...

class PullResponse(_message.Message):
    __slots__ = ("meta", "end", "chunk")
    META_FIELD_NUMBER: _ClassVar[int]
    END_FIELD_NUMBER: _ClassVar[int]
    CHUNK_FIELD_NUMBER: _ClassVar[int]
    meta: SnapshotMeta
    end: bool
    chunk: _tensor_pb2.Chunk
    def __init__(self, meta: _Optional[_Union[SnapshotMeta, _Mapping]] = ..., end: bool = ..., chunk: _Optional[_Union[_tensor_pb2.Chunk, _Mapping]] = ...) -> None: ...

class SnapshotMeta(_message.Message):
    __slots__ = ("snapshot", "run", "generation", "global_step", "total_bytes", "keep_ms", "job", "rows")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    RUN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    TOTAL_BYTES_FIELD_NUMBER: _ClassVar[int]
    KEEP_MS_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    snapshot: int
    run: int
    generation: int
    global_step: int
    total_bytes: int
    keep_ms: int
    job: _job_pb2.JobSpec
    rows: int
    def __init__(self, snapshot: _Optional[int] = ..., run: _Optional[int] = ..., generation: _Optional[int] = ..., global_step: _Optional[int] = ..., total_bytes: _Optional[int] = ..., keep_ms: _Optional[int] = ..., job: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., rows: _Optional[int] = ...) -> None: ...
