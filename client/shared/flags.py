"""Flags that several commands share, one definition each, and how commands refuse what they do not know."""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

Decorated = TypeVar("Decorated", bound=Callable[..., Any])
Decorator = Callable[[Decorated], Decorated]

if TYPE_CHECKING:
    _IntType = click.ParamType[int]
    _FloatType = click.ParamType[float]
    _StrType = click.ParamType[str]
else:  # older versions of click have no parameters here
    _IntType = _FloatType = _StrType = click.ParamType

OPTIMIZERS = ("sgd", "momentum", "adagrad", "adam")
MAX_U32 = (1 << 32) - 1
MAX_U64 = (1 << 64) - 1


def _refuse(param: click.Parameter | None, ctx: click.Context | None, value: object, rule: str) -> click.UsageError:
    flag = "/".join(param.opts) if param else "value"
    return click.UsageError(f"{flag} {value}: {rule}", ctx)


class Whole(_IntType):
    """A whole number within a range; the error names the flag, the value and the range."""

    name = "integer"

    def __init__(self, minimum: int = 0, maximum: int = MAX_U64) -> None:
        self.minimum = minimum
        self.maximum = maximum

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number, or raises click.UsageError."""
        try:
            number = int(value)
        except ValueError:
            raise _refuse(param, ctx, value, f"must be a whole number, {self._range()}") from None
        if not self.minimum <= number <= self.maximum:
            raise _refuse(param, ctx, value, f"must be {self._range()}")
        return number

    def _range(self) -> str:
        if self.maximum in (MAX_U32, MAX_U64):
            return f"at least {self.minimum}" if self.minimum > 0 or self.maximum == MAX_U64 else "0 or more"
        return f"{self.minimum} to {self.maximum}"


class Real(_FloatType):
    """A finite number above a limit, or from the limit on, and below another one."""

    name = "number"

    def __init__(self, *, above: float | None = None, minimum: float | None = None, below: float = math.inf) -> None:
        self.above = above
        self.minimum = minimum
        self.below = below

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Returns the number, or raises click.UsageError; nan and infinities are refused."""
        try:
            number = float(value)
        except ValueError:
            number = math.nan
        if not math.isfinite(number) or not self._inside(number):
            raise _refuse(param, ctx, value, f"must be a finite number{self._range()}")
        return number

    def _inside(self, number: float) -> bool:
        low = self.above is None or number > self.above
        return low and (self.minimum is None or number >= self.minimum) and number < self.below

    def _range(self) -> str:
        low = f" above {self.above:g}" if self.above is not None else ""
        low = f" from {self.minimum:g}" if self.minimum is not None else low
        return low + (f" and below {self.below:g}" if math.isfinite(self.below) else "")


class OneOf(_StrType):
    """One of some words; the error lists them, the closest first."""

    name = "word"

    def __init__(self, *words: str) -> None:
        self.words = words

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Shows the words in --help."""
        return "{" + ",".join(self.words) + "}"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Returns the word, or raises click.UsageError."""
        if value not in self.words:
            raise _refuse(param, ctx, value, f"must be one of {', '.join(self.words)}{did_you_mean(value, self.words)}")
        return str(value)


def did_you_mean(typed: str, known: Sequence[str]) -> str:
    """Returns " (did you mean ...?)" with what is closest to the word typed, or nothing."""
    close = [word for word in known if word.startswith(typed)][:1] or difflib.get_close_matches(typed, known, n=1)
    return f" (did you mean {close[0]}?)" if close else ""


def _job_flags() -> dict[str, Decorator[Any]]:
    """The flags that state a setting of the whole job, by the names of the settings. None means not stated."""
    u32, u64 = Whole(1, MAX_U32), Whole(1)
    return {
        "mode": click.option("--mode", type=OneOf("async", "sync"), help="Updates one by one, or in rounds."),
        "workers": click.option("--workers", type=u32, help="Sync: gradients that a round averages (N)."),
        "backup": click.option("--backup", type=Whole(0, MAX_U32), help="Sync: workers beyond N that may be late (K)."),
        "min_workers": click.option("--min-workers", type=u32, help="Sync: workers needed when others are lost."),
        "max_workers": click.option("--max-workers", type=u32, help="Async: workers the job admits."),
        "steps": click.option("--steps", type=u64, help="Global step at which the job ends."),
        "epochs": click.option("--epochs", type=u64, help="Times that each example is used."),
        "batch_size": click.option("--batch-size", type=u32, help="Examples in one batch."),
        "seed": click.option("--seed", type=Whole(), help="Seed of the initial values and the order of examples."),
        "optimizer": click.option("--optimizer", type=OneOf(*OPTIMIZERS), help="How gradients change parameters."),
        "learning_rate": click.option(
            "--learning-rate", "--lr", type=Real(above=0), help="Step size of the optimizer, above 0."
        ),
        "momentum": click.option("--momentum", type=Real(minimum=0, below=1), help="Momentum: decay of the velocity."),
        "nesterov": click.option(
            "--nesterov/--no-nesterov", default=None, help="Momentum: whether the look-ahead form is used."
        ),
    }


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


def stated_flags(flags: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the settings that the flags state, by name; what is None or no setting is left out."""
    return {name: flags[name] for name in JOB_FLAGS if flags.get(name) is not None}


def check_job_flags(flags: Mapping[str, Any]) -> None:
    """Raises click.UsageError for flags that exclude each other."""
    workers, least = flags.get("workers"), flags.get("min_workers")
    if workers is not None and least is not None and least > workers:
        raise click.UsageError(f"--min-workers {least}: must be 1 to {workers}, the value of --workers")


def threads_option(default: str) -> Decorator[Any]:
    """Adds --threads, those of a worker's TensorFlow; `default` says for people what holds without it."""
    return click.option("--threads", type=Whole(1, 1024), help=f"Threads of a worker's TensorFlow. Default: {default}.")


def connect_timeout_option(whom: str) -> Decorator[Any]:
    """Adds --connect-timeout; `whom` says for people who is waited for."""
    return click.option(
        "--connect-timeout",
        type=Real(above=0),
        default=60.0,
        show_default=True,
        help=f"Seconds to wait for {whom}.",
    )


class _Strict:
    """Refuses options that do not exist, naming what was typed."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        try:
            return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]  # mixed into click.Command
        except click.NoSuchOption as error:
            raise unknown_option(error.option_name, typed, ctx) from None


class Command(_Strict, click.Command):
    """A click command whose unknown options are errors with a suggestion; there are no abbreviations."""


class Group(_Strict, click.Group):
    """A click group of such commands, which suggests for unknown subcommands too."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the subcommand, or raises click.UsageError with a suggestion."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            raise click.UsageError(f"unknown command {args[0]}{did_you_mean(args[0], known)}", ctx)
        return super().resolve_command(ctx, args)


def unknown_option(option: str, typed: list[str], ctx: click.Context) -> click.UsageError:
    """Describes an option that does not exist by what was typed: click names only the first letter of `-shard=1`."""
    known = [opt for param in ctx.command.get_params(ctx) for opt in (*param.opts, *param.secondary_opts)]
    if not option.startswith("--"):
        option = next((arg for arg in typed if arg.startswith(option)), option)
    wanted = "--" + option.lstrip("-").partition("=")[0]
    hint = f" (did you mean {wanted}?)" if wanted in known else did_you_mean(wanted, known)
    return click.UsageError(f"unknown option {option}{hint}", ctx)
