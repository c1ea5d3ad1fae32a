"""The optimizer that a Keras model was compiled with, as settings of a job."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from grpc_ps.models.spec import ModelDefaults, Setting

BATCH_SIZE = 32
"""As `fit` has it."""
STEPS = 1000

Config = Mapping[str, Any]

# By Keras's class: our name, its arguments under our names, and what the others must be.
_RULES: Mapping[str, tuple[str, Mapping[str, str], Mapping[str, Any]]] = MappingProxyType(
    {
        "SGD": ("momentum", {"momentum": "momentum", "nesterov": "nesterov"}, {}),
        "Adagrad": ("adagrad", {"initial_accumulator_value": "initial_accumulator"}, {"epsilon": 1e-7}),
        "Adam": ("adam", {"beta_1": "beta_1", "beta_2": "beta_2", "epsilon": "epsilon"}, {"amsgrad": False}),
        "AdamW": ("adamw", {"beta_1": "beta_1", "beta_2": "beta_2", "epsilon": "epsilon"}, {"amsgrad": False}),
        "RMSprop": (
            "rmsprop",
            {"rho": "rho", "momentum": "momentum", "epsilon": "epsilon"},
            {"centered": False},
        ),
        "Ftrl": (
            "ftrl",
            {
                "initial_accumulator_value": "initial_accumulator",
                "l1_regularization_strength": "l1",
                "l2_regularization_strength": "l2",
            },
            {"learning_rate_power": -0.5, "l2_shrinkage_regularization_strength": 0.0, "beta": 0.0},
        ),
    }
)
_COMMON = MappingProxyType(
    {
        "weight_decay": "weight_decay",
        "clipvalue": "clip_value",
        "clipnorm": "clip_norm",
        "global_clipnorm": "global_clip_norm",
    }
)
_UNUSED = MappingProxyType({"loss_scale_factor": None, "gradient_accumulation_steps": None})


class _NoCounterpart(Exception):
    """What of an optimizer is not possible here."""


def optimizer_defaults(optimizer: Any) -> ModelDefaults:
    """What to train with where nobody states anything else, and with which schedule.

    An optimizer that has no counterpart leaves `unsupported` with the reason: then a job has to state one.
    """
    try:
        return _translated(optimizer)
    except _NoCounterpart as error:
        reason = f"its optimizer {type(optimizer).__name__} cannot run on the shards: {error}"
        return ModelDefaults(
            optimizer="sgd", learning_rate=0.01, batch_size=BATCH_SIZE, steps=STEPS, unsupported=reason
        )


def _translated(optimizer: Any) -> ModelDefaults:
    kind = type(optimizer)
    # A subclass of the user's may do anything.
    if kind.__name__ not in _RULES or not kind.__module__.startswith("keras."):
        raise _NoCounterpart(f"there are {', '.join(_RULES)}")
    name, arguments, demanded = _RULES[kind.__name__]
    config = optimizer.get_config()
    if config.get("use_ema"):
        # Keras's average begins at once with its full momentum, ours as `ModelDefaults.hyper`'s moving_average does.
        advice = f"compile without it and give --moving-average {config['ema_momentum']!r}, whose first steps differ"
        raise _NoCounterpart(f"use_ema=True; {advice}")
    for key, value in {**demanded, **_UNUSED}.items():
        if config.get(key, value) != value:
            raise _NoCounterpart(f"{key}={config[key]!r}")
    if config.get("weight_decay") and getattr(optimizer, "_exclude_from_weight_decay", None):
        raise _NoCounterpart("it excludes variables from its weight decay")
    hyper: dict[str, Setting] = {
        ours: config[theirs] for theirs, ours in {**arguments, **_COMMON}.items() if config.get(theirs) is not None
    }
    if name == "momentum" and not hyper["momentum"]:
        name, hyper = "sgd", {key: value for key, value in hyper.items() if key not in ("momentum", "nesterov")}
    rate, schedule = _learning_rate(config["learning_rate"])
    if schedule:
        hyper["schedule"] = schedule
    return ModelDefaults(optimizer=name, learning_rate=rate, batch_size=BATCH_SIZE, steps=STEPS, hyper=hyper)


def _learning_rate(stated: Any) -> tuple[float, str]:
    """The first rate, and the schedule as --schedule has it."""
    if not isinstance(stated, Mapping):
        return float(str(np.float32(stated))), ""  # Keras keeps it in float32: 0.1, not 0.10000000149.
    forms: Mapping[str, Callable[[Config], tuple[float, str]]] = {
        "ExponentialDecay": _exponential,
        "PiecewiseConstantDecay": _piecewise,
        "CosineDecay": _cosine,
    }
    kind = stated["class_name"]
    if kind not in forms or stated.get("registered_name"):
        raise _NoCounterpart(f"its learning rate is a {kind}, there are {', '.join(forms)}")
    return forms[kind](stated["config"])


def _exponential(config: Config) -> tuple[float, str]:
    word = "staircase" if config["staircase"] else "exponential"
    steps, rate = _whole(config["decay_steps"]), float(config["decay_rate"])
    return float(config["initial_learning_rate"]), f"{word}:{steps}:{rate!r}"


def _piecewise(config: Config) -> tuple[float, str]:
    first, *others = (float(value) for value in config["values"])
    pairs = zip(config["boundaries"], others, strict=True)
    return first, "piecewise:" + ",".join(f"{_whole(bound)}={rate!r}" for bound, rate in pairs)


def _cosine(config: Config) -> tuple[float, str]:
    if config.get("warmup_target") is not None or config.get("warmup_steps"):
        raise _NoCounterpart("its CosineDecay warms up; --warmup-steps does that here")
    return float(config["initial_learning_rate"]), f"cosine:{_whole(config['decay_steps'])}:{float(config['alpha'])!r}"


def _whole(number: Any) -> int:
    if int(number) != number:
        raise _NoCounterpart(f"its schedule has {number} steps, which is no whole number")
    return int(number)
