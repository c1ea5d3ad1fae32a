from grpc_ps.protos import job_pb2 as _job_pb2
from grpc_ps.protos import parameter_server_pb2 as _parameter_server_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class FollowRequest(_message.Message):
    __slots__ = ("hello", "whole", "acknowledged", "overflow", "reduced", "unpinned", "saved", "leaving", "times", "tables", "unable")
    HELLO_FIELD_NUMBER: _ClassVar[int]
    WHOLE_FIELD_NUMBER: _ClassVar[int]
    ACKNOWLEDGED_FIELD_NUMBER: _ClassVar[int]
    OVERFLOW_FIELD_NUMBER: _ClassVar[int]
    REDUCED_FIELD_NUMBER: _ClassVar[int]
    UNPINNED_FIELD_NUMBER: _ClassVar[int]
    SAVED_FIELD_NUMBER: _ClassVar[int]
    LEAVING_FIELD_NUMBER: _ClassVar[int]
    TIMES_FIELD_NUMBER: _ClassVar[int]
    TABLES_FIELD_NUMBER: _ClassVar[int]
    UNABLE_FIELD_NUMBER: _ClassVar[int]
    hello: Hello
    whole: Whole
    acknowledged: int
    overflow: Overflow
    reduced: Reduced
    unpinned: int
    saved: Saved
    leaving: bool
    times: ShardTimes
    tables: _containers.RepeatedCompositeFieldContainer[TableHeld]
    unable: Unable
    def __init__(self, hello: _Optional[_Union[Hello, _Mapping]] = ..., whole: _Optional[_Union[Whole, _Mapping]] = ..., acknowledged: _Optional[int] = ..., overflow: _Optional[_Union[Overflow, _Mapping]] = ..., reduced: _Optional[_Union[Reduced, _Mapping]] = ..., unpinned: _Optional[int] = ..., saved: _Optional[_Union[Saved, _Mapping]] = ..., leaving: bool = ..., times: _Optional[_Union[ShardTimes, _Mapping]] = ..., tables: _Optional[_Iterable[_Union[TableHeld, _Mapping]]] = ..., unable: _Optional[_Union[Unable, _Mapping]] = ...) -> None: ...

class TableHeld(_message.Message):
    __slots__ = ("name", "rows", "capacity", "bytes")
    NAME_FIELD_NUMBER: _ClassVar[int]
    ROWS_FIELD_NUMBER: _ClassVar[int]
    CAPACITY_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    name: str
    rows: int
    capacity: int
    bytes: int
    def __init__(self, name: _Optional[str] = ..., rows: _Optional[int] = ..., capacity: _Optional[int] = ..., bytes: _Optional[int] = ...) -> None: ...

class Unable(_message.Message):
    __slots__ = ("exit_code", "reason")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    reason: str
    def __init__(self, exit_code: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class ShardTimes(_message.Message):
    __slots__ = ("pushes", "stage", "updates", "apply", "releases", "encode")
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    STAGE_FIELD_NUMBER: _ClassVar[int]
    UPDATES_FIELD_NUMBER: _ClassVar[int]
    APPLY_FIELD_NUMBER: _ClassVar[int]
    RELEASES_FIELD_NUMBER: _ClassVar[int]
    ENCODE_FIELD_NUMBER: _ClassVar[int]
    pushes: int
    stage: float
    updates: int
    apply: float
    releases: int
    encode: float
    def __init__(self, pushes: _Optional[int] = ..., stage: _Optional[float] = ..., updates: _Optional[int] = ..., apply: _Optional[float] = ..., releases: _Optional[int] = ..., encode: _Optional[float] = ...) -> None: ...

class Hello(_message.Message):
    __slots__ = ("protocol", "shard", "shard_count", "boot", "address", "position", "chunk_bytes", "generation", "checkpoint_mark")
    PROTOCOL_FIELD_NUMBER: _ClassVar[int]
    SHARD_FIELD_NUMBER: _ClassVar[int]
    SHARD_COUNT_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    ADDRESS_FIELD_NUMBER: _ClassVar[int]
    POSITION_FIELD_NUMBER: _ClassVar[int]
    CHUNK_BYTES_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_MARK_FIELD_NUMBER: _ClassVar[int]
    protocol: int
    shard: int
    shard_count: int
    boot: int
    address: str
    position: int
    chunk_bytes: int
    generation: int
    checkpoint_mark: str
    def __init__(self, protocol: _Optional[int] = ..., shard: _Optional[int] = ..., shard_count: _Optional[int] = ..., boot: _Optional[int] = ..., address: _Optional[str] = ..., position: _Optional[int] = ..., chunk_bytes: _Optional[int] = ..., generation: _Optional[int] = ..., checkpoint_mark: _Optional[str] = ...) -> None: ...

class Whole(_message.Message):
    __slots__ = ("header", "non_finite", "squares")
    HEADER_FIELD_NUMBER: _ClassVar[int]
    NON_FINITE_FIELD_NUMBER: _ClassVar[int]
    SQUARES_FIELD_NUMBER: _ClassVar[int]
    header: _parameter_server_pb2.PushHeader
    non_finite: str
    squares: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, header: _Optional[_Union[_parameter_server_pb2.PushHeader, _Mapping]] = ..., non_finite: _Optional[str] = ..., squares: _Optional[_Iterable[float]] = ...) -> None: ...

class Reduced(_message.Message):
    __slots__ = ("position", "squares")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    SQUARES_FIELD_NUMBER: _ClassVar[int]
    position: int
    squares: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, position: _Optional[int] = ..., squares: _Optional[_Iterable[float]] = ...) -> None: ...

class Saved(_message.Message):
    __slots__ = ("folder", "file", "bytes", "sha256", "error", "non_finite")
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    FILE_FIELD_NUMBER: _ClassVar[int]
    BYTES_FIELD_NUMBER: _ClassVar[int]
    SHA256_FIELD_NUMBER: _ClassVar[int]
    ERROR_FIELD_NUMBER: _ClassVar[int]
    NON_FINITE_FIELD_NUMBER: _ClassVar[int]
    folder: str
    file: str
    bytes: int
    sha256: str
    error: str
    non_finite: str
    def __init__(self, folder: _Optional[str] = ..., file: _Optional[str] = ..., bytes: _Optional[int] = ..., sha256: _Optional[str] = ..., error: _Optional[str] = ..., non_finite: _Optional[str] = ...) -> None: ...

class Overflow(_message.Message):
    __slots__ = ("parameter", "global_step")
    PARAMETER_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    parameter: str
    global_step: int
    def __init__(self, parameter: _Optional[str] = ..., global_step: _Optional[int] = ...) -> None: ...

class FollowResponse(_message.Message):
    __slots__ = ("welcome", "entries", "shutdown")
    WELCOME_FIELD_NUMBER: _ClassVar[int]
    ENTRIES_FIELD_NUMBER: _ClassVar[int]
    SHUTDOWN_FIELD_NUMBER: _ClassVar[int]
    welcome: Welcome
    entries: _containers.RepeatedCompositeFieldContainer[Entry]
    shutdown: Shutdown
    def __init__(self, welcome: _Optional[_Union[Welcome, _Mapping]] = ..., entries: _Optional[_Iterable[_Union[Entry, _Mapping]]] = ..., shutdown: _Optional[_Union[Shutdown, _Mapping]] = ...) -> None: ...

class Welcome(_message.Message):
    __slots__ = ("run", "generation", "boot", "earlier_runs")
    RUN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    BOOT_FIELD_NUMBER: _ClassVar[int]
    EARLIER_RUNS_FIELD_NUMBER: _ClassVar[int]
    run: int
    generation: int
    boot: int
    earlier_runs: _containers.RepeatedScalarFieldContainer[int]
    def __init__(self, run: _Optional[int] = ..., generation: _Optional[int] = ..., boot: _Optional[int] = ..., earlier_runs: _Optional[_Iterable[int]] = ...) -> None: ...

class Shutdown(_message.Message):
    __slots__ = ("exit_code", "reason")
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    exit_code: int
    reason: str
    def __init__(self, exit_code: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...

class Entry(_message.Message):
    __slots__ = ("position", "open", "admit", "dismiss", "apply", "answer", "pin", "stop", "reduce", "save")
    POSITION_FIELD_NUMBER: _ClassVar[int]
    OPEN_FIELD_NUMBER: _ClassVar[int]
    ADMIT_FIELD_NUMBER: _ClassVar[int]
    DISMISS_FIELD_NUMBER: _ClassVar[int]
    APPLY_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    PIN_FIELD_NUMBER: _ClassVar[int]
    STOP_FIELD_NUMBER: _ClassVar[int]
    REDUCE_FIELD_NUMBER: _ClassVar[int]
    SAVE_FIELD_NUMBER: _ClassVar[int]
    position: int
    open: Open
    admit: Admit
    dismiss: Dismiss
    apply: Apply
    answer: AnswerEntry
    pin: Pin
    stop: Stop
    reduce: Reduce
    save: Save
    def __init__(self, position: _Optional[int] = ..., open: _Optional[_Union[Open, _Mapping]] = ..., admit: _Optional[_Union[Admit, _Mapping]] = ..., dismiss: _Optional[_Union[Dismiss, _Mapping]] = ..., apply: _Optional[_Union[Apply, _Mapping]] = ..., answer: _Optional[_Union[AnswerEntry, _Mapping]] = ..., pin: _Optional[_Union[Pin, _Mapping]] = ..., stop: _Optional[_Union[Stop, _Mapping]] = ..., reduce: _Optional[_Union[Reduce, _Mapping]] = ..., save: _Optional[_Union[Save, _Mapping]] = ...) -> None: ...

class PushName(_message.Message):
    __slots__ = ("worker", "incarnation", "sequence")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    worker: int
    incarnation: int
    sequence: int
    def __init__(self, worker: _Optional[int] = ..., incarnation: _Optional[int] = ..., sequence: _Optional[int] = ...) -> None: ...

class Open(_message.Message):
    __slots__ = ("push", "job", "checkpoint", "global_step")
    PUSH_FIELD_NUMBER: _ClassVar[int]
    JOB_FIELD_NUMBER: _ClassVar[int]
    CHECKPOINT_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    push: PushName
    job: _job_pb2.JobSpec
    checkpoint: str
    global_step: int
    def __init__(self, push: _Optional[_Union[PushName, _Mapping]] = ..., job: _Optional[_Union[_job_pb2.JobSpec, _Mapping]] = ..., checkpoint: _Optional[str] = ..., global_step: _Optional[int] = ...) -> None: ...

class Save(_message.Message):
    __slots__ = ("folder", "global_step", "patience_ms")
    FOLDER_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    PATIENCE_MS_FIELD_NUMBER: _ClassVar[int]
    folder: str
    global_step: int
    patience_ms: int
    def __init__(self, folder: _Optional[str] = ..., global_step: _Optional[int] = ..., patience_ms: _Optional[int] = ...) -> None: ...

class Admit(_message.Message):
    __slots__ = ("worker", "incarnation")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    worker: int
    incarnation: int
    def __init__(self, worker: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Dismiss(_message.Message):
    __slots__ = ("worker", "incarnation", "reason", "detail", "keep_sequence")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    DETAIL_FIELD_NUMBER: _ClassVar[int]
    KEEP_SEQUENCE_FIELD_NUMBER: _ClassVar[int]
    worker: int
    incarnation: int
    reason: str
    detail: str
    keep_sequence: int
    def __init__(self, worker: _Optional[int] = ..., incarnation: _Optional[int] = ..., reason: _Optional[str] = ..., detail: _Optional[str] = ..., keep_sequence: _Optional[int] = ...) -> None: ...

class Reduce(_message.Message):
    __slots__ = ("pushes",)
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    pushes: _containers.RepeatedCompositeFieldContainer[WeightedPush]
    def __init__(self, pushes: _Optional[_Iterable[_Union[WeightedPush, _Mapping]]] = ...) -> None: ...

class Apply(_message.Message):
    __slots__ = ("global_step", "pushes", "learning_rate", "scales")
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    PUSHES_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    SCALES_FIELD_NUMBER: _ClassVar[int]
    global_step: int
    pushes: _containers.RepeatedCompositeFieldContainer[WeightedPush]
    learning_rate: float
    scales: _containers.RepeatedScalarFieldContainer[float]
    def __init__(self, global_step: _Optional[int] = ..., pushes: _Optional[_Iterable[_Union[WeightedPush, _Mapping]]] = ..., learning_rate: _Optional[float] = ..., scales: _Optional[_Iterable[float]] = ...) -> None: ...

class WeightedPush(_message.Message):
    __slots__ = ("push", "weight")
    PUSH_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_FIELD_NUMBER: _ClassVar[int]
    push: PushName
    weight: float
    def __init__(self, push: _Optional[_Union[PushName, _Mapping]] = ..., weight: _Optional[float] = ...) -> None: ...

class AnswerEntry(_message.Message):
    __slots__ = ("worker", "answer")
    WORKER_FIELD_NUMBER: _ClassVar[int]
    ANSWER_FIELD_NUMBER: _ClassVar[int]
    worker: int
    answer: _parameter_server_pb2.Answer
    def __init__(self, worker: _Optional[int] = ..., answer: _Optional[_Union[_parameter_server_pb2.Answer, _Mapping]] = ...) -> None: ...

class Pin(_message.Message):
    __slots__ = ("snapshot", "global_step", "keep_ms", "averages")
    SNAPSHOT_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    KEEP_MS_FIELD_NUMBER: _ClassVar[int]
    AVERAGES_FIELD_NUMBER: _ClassVar[int]
    snapshot: int
    global_step: int
    keep_ms: int
    averages: bool
    def __init__(self, snapshot: _Optional[int] = ..., global_step: _Optional[int] = ..., keep_ms: _Optional[int] = ..., averages: bool = ...) -> None: ...

class Stop(_message.Message):
    __slots__ = ("global_step", "exit_code", "reason")
    GLOBAL_STEP_FIELD_NUMBER: _ClassVar[int]
    EXIT_CODE_FIELD_NUMBER: _ClassVar[int]
    REASON_FIELD_NUMBER: _ClassVar[int]
    global_step: int
    exit_code: int
    reason: str
    def __init__(self, global_step: _Optional[int] = ..., exit_code: _Optional[int] = ..., reason: _Optional[str] = ...) -> None: ...
