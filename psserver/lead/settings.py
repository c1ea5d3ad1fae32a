"""What all processes of a job must agree on: its settings and its parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from grpc_ps.psserver.lead.compression import check_compress
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.schedule import schedule
from grpc_ps.psserver.lead.until import parse_until

Value = str | int | float | bool
Settings = Mapping[str, Value]

MAX_FLOAT32 = (2 - 2**-23) * 2.0**127

LIMITS = frozenset(("steps", "epochs"))

CLIPS = ("clip_value", "clip_norm", "global_clip_norm")

WIRE_DTYPES = ("float32", "bfloat16", "float16")

_OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam", "adamw", "rmsprop", "ftrl")
_WORDS = (
    ("mode", ("async", "sync")),
    ("optimizer", _OPTIMIZERS),
    ("push_dtype", WIRE_DTYPES),
    ("pull_dtype", WIRE_DTYPES),
)
_AT_LEAST_ONE = ("workers", "max_workers", "batch_size")
_POSITIVE = ("learning_rate", "epsilon")
_DECAYS = ("momentum", "beta_1", "beta_2", "rho", "moving_average")
_NOT_NEGATIVE = ("initial_accumulator", "weight_decay", "l1", "l2", *CLIPS)

DEFAULTS: Settings = MappingProxyType(
    {
        "mode": "async",
        "workers": 1,
        "backup": 0,
        "steps": 0,
        "epochs": 0,
        "batch_size": 1,
        "examples": 0,
        "data": "",
        "seed": 0,
        "optimizer": "sgd",
        "learning_rate": 0.01,
        "min_workers": 0,
        "max_workers": 64,
        "momentum": 0.9,
        "nesterov": False,
        "initial_accumulator": 0.1,
        "beta_1": 0.9,
        "beta_2": 0.999,
        "epsilon": 1e-7,
        "max_staleness": -1,
        "schedule": "constant",
        "warmup_steps": 0,
        "weight_decay": 0.0,
        "clip_value": 0.0,
        "clip_norm": 0.0,
        "global_clip_norm": 0.0,
        "rho": 0.9,
        "l1": 0.0,
        "l2": 0.0,
        "threads": 0,
        "eval_every": 0,
        "until": "",
        "initial_values": "",
        "push_dtype": "float32",
        "pull_dtype": "float32",
        "compress": "",
        "moving_average": 0.0,
    }
)

OPTIMIZER_DEFAULTS: Mapping[str, Settings] = MappingProxyType(
    {
        "adamw": {"weight_decay": 0.004},
        "rmsprop": {"momentum": 0.0, "initial_accumulator": 0.0},
    }
)
"""What holds for one optimizer in place of the default, as in Keras."""

EVAL_EVERY = 100
"""Steps between evaluations of a job that is to end by one, where nobody states them."""


@dataclass(frozen=True, slots=True)
class Signature:
    """A parameter as the job knows it; `table` has the fields of a table by name."""

    name: str
    shape: tuple[int, ...]
    dtype: str
    trainable: bool
    table: Mapping[str, Any] | None = None

    def __str__(self) -> str:
        kind = "" if self.trainable else " not trainable"
        if self.table is not None:
            kind = " table " + " ".join(f"{name}={value}" for name, value in self.table.items())
        return f"{self.dtype}{list(self.shape)}{kind}"


def complete(*layers: Settings) -> dict[str, Value]:
    """Merges layers of settings, the first one that states a value wins, over the defaults.

    Raises:
        Refusal: MISMATCH, where the merged values contradict each other.
    """
    optimizer = next((layer["optimizer"] for layer in layers if "optimizer" in layer), DEFAULTS["optimizer"])
    merged = {**DEFAULTS, **OPTIMIZER_DEFAULTS.get(str(optimizer), {})}
    for layer in reversed(layers):
        # Whoever says when the job ends says it whole: `epochs` is not cut short by some other layer's `steps`.
        if LIMITS & layer.keys():
            merged.update({name: DEFAULTS[name] for name in LIMITS})
        merged.update(layer)
    if merged["until"] and not any("eval_every" in layer for layer in layers):
        merged["eval_every"] = EVAL_EVERY
    check(merged)
    return merged


def check(settings: Settings) -> None:
    """Refuses complete settings that are not possible.

    Raises:
        Refusal: MISMATCH, with the value and the rule.
    """
    for name, words in _WORDS:
        _demand(settings, name, settings[name] in words, f"one of {', '.join(words)}")
    for name in _AT_LEAST_ONE:
        _demand(settings, name, int(settings[name]) >= 1, "at least 1")
    for name in _POSITIVE:
        _demand(settings, name, 0 < float(settings[name]) <= MAX_FLOAT32, "a finite number above 0")
    for name in _DECAYS:
        _demand(settings, name, 0 <= float(settings[name]) < 1, "from 0 and below 1")
    for name in _NOT_NEGATIVE:
        _demand(settings, name, 0 <= float(settings[name]) < math.inf, "finite, 0 or more")
    _demand(settings, "max_staleness", int(settings["max_staleness"]) >= -1, "0 or more, or -1 for no bound")
    _check_texts(settings)
    if settings["epochs"] and not settings["examples"]:
        data = settings["data"]
        raise Refusal("MISMATCH", f"epochs {settings['epochs']}: the data {data!r} has no epochs; set steps")
    workers, least = int(settings["workers"]), int(settings["min_workers"])
    if least > workers:
        raise Refusal("MISMATCH", f"min_workers {least} is more than workers {workers}")
    clips = [name for name in CLIPS if settings[name]]
    if len(clips) > 1:
        raise Refusal("MISMATCH", f"{' and '.join(clips)}: at most one kind of clipping can be set")
    if settings["until"] and not settings["eval_every"]:
        raise Refusal("MISMATCH", f"until {settings['until']!r} needs eval_every, and that is 0")


def _check_texts(settings: Settings) -> None:
    """Refuses what the small languages of settings do not know."""
    name = "schedule"
    try:
        schedule(str(settings[name]), float(settings["learning_rate"]), int(settings["warmup_steps"]))
        name = "until"
        parse_until(str(settings[name]))
        name = "compress"
        check_compress(str(settings[name]), str(settings["push_dtype"]))
    except ValueError as error:
        raise Refusal("MISMATCH", f"{name} {settings[name]!r}: {error}") from None


def _demand(settings: Settings, name: str, holds: bool, rule: str) -> None:
    if not holds:
        raise Refusal("MISMATCH", f"{name} {settings[name]!r} must be {rule}")


def check_agreement(job: Settings, stated: Settings, whose: str = "the job") -> None:
    """Refuses a newcomer that insists on another value than the job's.

    Raises:
        Refusal: MISMATCH, with both values.
    """
    for name, value in stated.items():
        if name in job and job[name] != value:
            raise Refusal("MISMATCH", f"{name}: {whose} has {job[name]!r}, this worker has {value!r}")


def check_parameters(
    job: Mapping[str, Signature], parameters: Mapping[str, Signature], models: str = "", saved: str = ""
) -> None:
    """Refuses a newcomer whose model is not the job's.

    `models` says how the models are called where they differ, `saved` where the job comes from.

    Raises:
        Refusal: MISMATCH, with the first parameter (by name) that differs and both forms of it.
    """
    for name in sorted(job.keys() | parameters.keys()):
        ours, theirs = job.get(name), parameters.get(name)
        if ours != theirs:
            raise Refusal(
                "MISMATCH",
                f"{models}parameter {name!r}: the job has {ours or 'none of that name'}, "
                f"this worker's model has {theirs or 'none of that name'}{saved}",
            )


def least_workers(settings: Settings) -> int:
    """How many workers a round needs when others are lost."""
    return int(settings["min_workers"]) or int(settings["workers"])
