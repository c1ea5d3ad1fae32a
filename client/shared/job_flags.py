"""The flags that state a setting of the whole job: one definition for `psserver`, `worker` and `psctl launch`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

import click

from grpc_ps.client.shared.flag_forms import Bound, schedule, until
from grpc_ps.client.shared.flags import MAX_U32, Decorated, Decorator, Flag, OneOf, Real, Whole, flag_of
from grpc_ps.client.shared.wire_flags import wire_flags

MODES = ("async", "sync")
OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam", "adamw", "rmsprop", "ftrl")
CLIPS = ("clip_value", "clip_norm", "global_clip_norm")

# What --help says of settings for which a model has defaults.
_MODELS = "Default: the model's."
# Settings that only some optimizers have.
_OPTIMIZERS_OF: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "momentum": ("momentum", "rmsprop"),
        "nesterov": ("momentum",),
        "beta_1": ("adam", "adamw"),
        "beta_2": ("adam", "adamw"),
        "rho": ("rmsprop",),
        "epsilon": ("adam", "adamw", "rmsprop"),
        "initial_accumulator": ("adagrad", "ftrl", "rmsprop"),
        "l1": ("ftrl",),
        "l2": ("ftrl",),
    }
)


def _member_flags() -> dict[str, Decorator[Any]]:
    """Who takes part, and how gradients come together."""
    option = partial(click.option, cls=Flag, topic="Settings of the job: workers")
    u32 = Whole(1, MAX_U32)
    return {
        "mode": option("--mode", type=OneOf(*MODES), help="Updates one by one, or in rounds."),
        "workers": option("--workers", type=u32, help="Sync: gradients that a round averages (N)."),
        "backup": option("--backup", type=Whole(0, MAX_U32), help="Sync: workers beyond N that may be late (K)."),
        "min_workers": option("--min-workers", type=u32, help="Sync: workers needed when others are lost."),
        "max_workers": option("--max-workers", type=u32, help="Async: workers the job admits."),
        "max_staleness": option(
            "--max-staleness", type=Bound(), help="Async: applied pushes that a worker may be ahead of the slowest one."
        ),
        "threads": option("--threads", type=Whole(1, 1024), help="Threads of every worker's TensorFlow."),
    }


def _end_flags() -> dict[str, Decorator[Any]]:
    """What is computed, and until when."""
    option = partial(click.option, cls=Flag, topic="Settings of the job: batches, evaluation and end")
    until_help = (
        "End when an evaluation reaches it: 'accuracy>=0.97', 'mse<=0.01' (quoted for the shell). METRIC=NUMBER will do"
        " where the name says the direction: accuracy=0.97, loss=0.1."
    )
    every_help = "Global steps from one evaluation to the next. Default: none, or 100 with --until."
    return {
        "steps": option(
            "--steps",
            type=Whole(1),
            help=f"Global step at which the job ends. {_MODELS[:-1]}, where neither --epochs nor --until is given.",
        ),
        "epochs": option("--epochs", type=Whole(1), help="Times that each example is used."),
        "until": option("--until", metavar="METRIC>=NUMBER|METRIC<=NUMBER", callback=until, help=until_help),
        "eval_every": option("--eval-every", type=Whole(1), help=every_help),
        "batch_size": option("--batch-size", type=Whole(1, MAX_U32), help=f"Examples in one batch. {_MODELS}"),
        "seed": option("--seed", type=Whole(), help="Seed of the initial values and the order of examples."),
    }


def _optimizer_flags() -> dict[str, Decorator[Any]]:
    """How gradients change parameters."""
    option = partial(click.option, cls=Flag, topic="Settings of the job: optimizer")
    decay = partial(option, type=Real(minimum=0, below=1))
    amount = partial(option, type=Real(minimum=0))
    return {
        "optimizer": option(
            "--optimizer", type=OneOf(*OPTIMIZERS), metavar="NAME", help=f"{', '.join(OPTIMIZERS)}. {_MODELS}"
        ),
        "momentum": decay("--momentum", help="Momentum, rmsprop: decay of the velocity."),
        "nesterov": option(
            "--nesterov/--no-nesterov", default=None, help="Momentum: whether the look-ahead form is used."
        ),
        "beta_1": decay("--beta-1", help="Adam, adamw: decay of the mean."),
        "beta_2": decay("--beta-2", help="Adam, adamw: decay of the mean square."),
        "rho": decay("--rho", help="Rmsprop: decay of the mean square."),
        "epsilon": option("--epsilon", type=Real(above=0), help="Adam, adamw, rmsprop: keeps divisions finite."),
        "initial_accumulator": amount(
            "--initial-accumulator", help="Adagrad, ftrl, rmsprop: first value of the squares."
        ),
        "l1": amount("--l1", help="Ftrl: strength of the L1 regularisation."),
        "l2": amount("--l2", help="Ftrl: strength of the L2 regularisation."),
    }


def _rate_flags() -> dict[str, Decorator[Any]]:
    """How large the steps are."""
    option = partial(click.option, cls=Flag, topic="Settings of the job: learning rate, decay, clipping, averages")
    amount = partial(option, type=Real(minimum=0))
    forms = "exponential:STEPS:RATE, staircase:STEPS:RATE, piecewise:STEP=RATE,..., cosine:STEPS[:ALPHA] or constant."
    return {
        "learning_rate": option(
            "--learning-rate",
            "--lr",
            type=Real(above=0),
            help=f"The rate, or the one that a schedule begins with. {_MODELS}",
        ),
        "schedule": option("--schedule", metavar="FORM", callback=schedule, help=forms),
        "warmup_steps": option("--warmup-steps", type=Whole(), help="Steps in which the rate rises from 0."),
        "weight_decay": amount("--weight-decay", help="Part of itself, times the rate, that a parameter loses a step."),
        "clip_value": amount("--clip-value", help="Limit of each element of the gradient."),
        "clip_norm": amount("--clip-norm", help="Limit of the norm of each parameter's gradient."),
        "global_clip_norm": amount("--global-clip-norm", help="Limit of the norm of the whole gradient."),
        "moving_average": option(
            "--moving-average",
            type=Real(minimum=0, below=1),
            metavar="DECAY",
            help="Evaluate and export a moving average of the parameters with this decay. 0: none.",
        ),
    }


def _job_flags() -> dict[str, Decorator[Any]]:
    """By the names of the settings. A flag that is not given is None."""
    return {**_member_flags(), **_end_flags(), **_optimizer_flags(), **_rate_flags(), **wire_flags()}


JOB_FLAGS = tuple(_job_flags())


def job_options(*names: str) -> Callable[[Decorated], Decorated]:
    """Adds flags of `JOB_FLAGS` to a click command, all of them without names.

    Each becomes a keyword argument, None if it is not given.
    """

    def add(command: Decorated) -> Decorated:
        flags = _job_flags()
        for name in reversed(names or JOB_FLAGS):
            command = flags[name](command)
        return command

    return add


def overlap_option() -> Callable[[Decorated], Decorated]:
    """Adds --overlap, which is a worker's own: it says how that computes."""
    text = "Compute the next gradient while a push is exchanged: faster steps, staleness + 1. Needs --mode async."
    return click.option("--overlap", is_flag=True, help=text)


def stated_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that the flags state, by name; what is None or no setting is left out."""
    return {name: flags[name] for name in JOB_FLAGS if flags.get(name) is not None}


def check_job_flags(flags: Mapping[str, Any]) -> None:
    """Raises click.UsageError for flags that exclude each other, or that another one leaves without effect."""
    workers, least = flags.get("workers"), flags.get("min_workers")
    if workers is not None and least is not None and least > workers:
        raise click.UsageError(f"--min-workers {least}: must be 1 to {workers}, the value of --workers")
    staleness = flags.get("max_staleness")
    if flags.get("mode") == "sync" and staleness is not None and staleness >= 0:
        raise click.UsageError(f"--max-staleness {staleness}: only with --mode async; in sync no gradient is stale")
    if flags.get("mode") == "sync" and flags.get("overlap"):
        raise click.UsageError("--overlap: only with --mode async; in sync no gradient is stale")
    clips = [name for name in CLIPS if flags.get(name)]
    if len(clips) > 1:
        raise click.UsageError(f"{' and '.join(map(flag_of, clips))}: at most one kind of clipping can be set")
    _check_optimizer(flags)


def _check_optimizer(flags: Mapping[str, Any]) -> None:
    optimizer = flags.get("optimizer")
    for name, optimizers in _OPTIMIZERS_OF.items():
        if optimizer is not None and flags.get(name) is not None and optimizer not in optimizers:
            raise click.UsageError(
                f"{flag_of(name)}: {optimizer} has none; only with --optimizer {' or '.join(optimizers)}"
            )
