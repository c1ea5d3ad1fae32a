from grpc_ps.protos import tensor_pb2 as _tensor_pb2
from google.protobuf.internal import containers as _containers
from google.protobuf import descriptor as _descriptor
from google.protobuf import message as _message
from collections.abc import Iterable as _Iterable, Mapping as _Mapping
from typing import ClassVar as _ClassVar, Optional as _Optional, Union as _Union

DESCRIPTOR: _descriptor.FileDescriptor

class Identity(_message.Message):
    __slots__ = ("run", "generation", "worker", "incarnation")
    RUN_FIELD_NUMBER: _ClassVar[int]
    GENERATION_FIELD_NUMBER: _ClassVar[int]
    WORKER_FIELD_NUMBER: _ClassVar[int]
    INCARNATION_FIELD_NUMBER: _ClassVar[int]
    run: int
    generation: int
    worker: int
    incarnation: int
    def __init__(self, run: _Optional[int] = ..., generation: _Optional[int] = ..., worker: _Optional[int] = ..., incarnation: _Optional[int] = ...) -> None: ...

class Settings(_message.Message):
    __slots__ = ("mode", "workers", "backup", "steps", "epochs", "batch_size", "examples", "data", "seed", "optimizer", "learning_rate", "min_workers", "max_workers", "momentum", "nesterov", "initial_accumulator", "beta_1", "beta_2", "epsilon", "max_staleness", "schedule", "warmup_steps", "weight_decay", "clip_value", "clip_norm", "global_clip_norm", "rho", "l1", "l2", "threads", "eval_every", "until", "initial_values", "push_dtype", "pull_dtype", "compress", "moving_average")
    MODE_FIELD_NUMBER: _ClassVar[int]
    WORKERS_FIELD_NUMBER: _ClassVar[int]
    BACKUP_FIELD_NUMBER: _ClassVar[int]
    STEPS_FIELD_NUMBER: _ClassVar[int]
    EPOCHS_FIELD_NUMBER: _ClassVar[int]
    BATCH_SIZE_FIELD_NUMBER: _ClassVar[int]
    EXAMPLES_FIELD_NUMBER: _ClassVar[int]
    DATA_FIELD_NUMBER: _ClassVar[int]
    SEED_FIELD_NUMBER: _ClassVar[int]
    OPTIMIZER_FIELD_NUMBER: _ClassVar[int]
    LEARNING_RATE_FIELD_NUMBER: _ClassVar[int]
    MIN_WORKERS_FIELD_NUMBER: _ClassVar[int]
    MAX_WORKERS_FIELD_NUMBER: _ClassVar[int]
    MOMENTUM_FIELD_NUMBER: _ClassVar[int]
    NESTEROV_FIELD_NUMBER: _ClassVar[int]
    INITIAL_ACCUMULATOR_FIELD_NUMBER: _ClassVar[int]
    BETA_1_FIELD_NUMBER: _ClassVar[int]
    BETA_2_FIELD_NUMBER: _ClassVar[int]
    EPSILON_FIELD_NUMBER: _ClassVar[int]
    MAX_STALENESS_FIELD_NUMBER: _ClassVar[int]
    SCHEDULE_FIELD_NUMBER: _ClassVar[int]
    WARMUP_STEPS_FIELD_NUMBER: _ClassVar[int]
    WEIGHT_DECAY_FIELD_NUMBER: _ClassVar[int]
    CLIP_VALUE_FIELD_NUMBER: _ClassVar[int]
    CLIP_NORM_FIELD_NUMBER: _ClassVar[int]
    GLOBAL_CLIP_NORM_FIELD_NUMBER: _ClassVar[int]
    RHO_FIELD_NUMBER: _ClassVar[int]
    L1_FIELD_NUMBER: _ClassVar[int]
    L2_FIELD_NUMBER: _ClassVar[int]
    THREADS_FIELD_NUMBER: _ClassVar[int]
    EVAL_EVERY_FIELD_NUMBER: _ClassVar[int]
    UNTIL_FIELD_NUMBER: _ClassVar[int]
    INITIAL_VALUES_FIELD_NUMBER: _ClassVar[int]
    PUSH_DTYPE_FIELD_NUMBER: _ClassVar[int]
    PULL_DTYPE_FIELD_NUMBER: _ClassVar[int]
    COMPRESS_FIELD_NUMBER: _ClassVar[int]
    MOVING_AVERAGE_FIELD_NUMBER: _ClassVar[int]
    mode: str
    workers: int
    backup: int
    steps: int
    epochs: int
    batch_size: int
    examples: int
    data: str
    seed: int
    optimizer: str
    learning_rate: float
    min_workers: int
    max_workers: int
    momentum: float
    nesterov: bool
    initial_accumulator: float
    beta_1: float
    beta_2: float
    epsilon: float
    max_staleness: int
    schedule: str
    warmup_steps: int
    weight_decay: float
    clip_value: float
    clip_norm: float
    global_clip_norm: float
    rho: float
    l1: float
    l2: float
    threads: int
    eval_every: int
    until: str
    initial_values: str
    push_dtype: str
    pull_dtype: str
    compress: str
    moving_average: float
    def __init__(self, mode: _Optional[str] = ..., workers: _Optional[int] = ..., backup: _Optional[int] = ..., steps: _Optional[int] = ..., epochs: _Optional[int] = ..., batch_size: _Optional[int] = ..., examples: _Optional[int] = ..., data: _Optional[str] = ..., seed: _Optional[int] = ..., optimizer: _Optional[str] = ..., learning_rate: _Optional[float] = ..., min_workers: _Optional[int] = ..., max_workers: _Optional[int] = ..., momentum: _Optional[float] = ..., nesterov: bool = ..., initial_accumulator: _Optional[float] = ..., beta_1: _Optional[float] = ..., beta_2: _Optional[float] = ..., epsilon: _Optional[float] = ..., max_staleness: _Optional[int] = ..., schedule: _Optional[str] = ..., warmup_steps: _Optional[int] = ..., weight_decay: _Optional[float] = ..., clip_value: _Optional[float] = ..., clip_norm: _Optional[float] = ..., global_clip_norm: _Optional[float] = ..., rho: _Optional[float] = ..., l1: _Optional[float] = ..., l2: _Optional[float] = ..., threads: _Optional[int] = ..., eval_every: _Optional[int] = ..., until: _Optional[str] = ..., initial_values: _Optional[str] = ..., push_dtype: _Optional[str] = ..., pull_dtype: _Optional[str] = ..., compress: _Optional[str] = ..., moving_average: _Optional[float] = ...) -> None: ...

class JobSpec(_message.Message):
    __slots__ = ("model", "parameters", "settings", "plan_fingerprint")
    MODEL_FIELD_NUMBER: _ClassVar[int]
    PARAMETERS_FIELD_NUMBER: _ClassVar[int]
    SETTINGS_FIELD_NUMBER: _ClassVar[int]
    PLAN_FINGERPRINT_FIELD_NUMBER: _ClassVar[int]
    model: str
    parameters: _containers.RepeatedCompositeFieldContainer[_tensor_pb2.Parameter]
    settings: Settings
    plan_fingerprint: str
    def __init__(self, model: _Optional[str] = ..., parameters: _Optional[_Iterable[_Union[_tensor_pb2.Parameter, _Mapping]]] = ..., settings: _Optional[_Union[Settings, _Mapping]] = ..., plan_fingerprint: _Optional[str] = ...) -> None: ...
