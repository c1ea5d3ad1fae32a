"""Flags that several commands share, one definition each, and how commands refuse what they do not know."""

from __future__ import annotations

import difflib
import math
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
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

MAX_U32 = (1 << 32) - 1
MAX_U64 = (1 << 64) - 1

PLACES = f"{__name__}.places"
"""Where click's context keeps what adds to an error the place of a flag that was not typed (`config_file`)."""


def refusal(param: click.Parameter | None, ctx: click.Context | None, value: object, rule: str) -> click.UsageError:
    """Describes a value that a flag does not take: the flag, the value and the rule."""
    named = param.human_readable_name if isinstance(param, click.Argument) else "/".join(param.opts) if param else ""
    flag = named or "value"
    return click.UsageError(f"{flag} {value}: {rule}", ctx)


class FilePath(click.Path):
    """A path. An empty one, of a shell's variable that is not set, does not mean the present folder.

    What is there and of the other kind, a file or a folder, is refused.
    """

    def __init__(self, **kinds: Any) -> None:
        super().__init__(path_type=Path, **kinds)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Returns the path, or raises click.UsageError."""
        if not str(value):
            raise refusal(param, ctx, "''", "must not be empty")
        if not self.file_okay and os.path.isfile(value):
            raise refusal(param, ctx, value, "is a file, expected a folder")
        if not self.dir_okay and os.path.isdir(value):
            raise refusal(param, ctx, value, "is a folder, expected a file")
        return super().convert(value, param, ctx)


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
            raise refusal(param, ctx, value, f"must be a whole number, {self._range()}") from None
        if not self.minimum <= number <= self.maximum:
            raise refusal(param, ctx, value, f"must be {self._range()}")
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
            raise refusal(param, ctx, value, f"must be a finite number{self._range()}")
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
            raise refusal(param, ctx, value, f"must be one of {', '.join(self.words)}{did_you_mean(value, self.words)}")
        return str(value)


def did_you_mean(typed: str, known: Sequence[str]) -> str:
    """Returns " (did you mean ...?)" with what is closest to the word typed, or nothing."""
    # Dashes are alike in all flags, and would make any two of them resemble each other.
    bare, words = typed.lstrip("-").lower(), {word.lstrip("-").lower(): word for word in known}
    if not bare:
        return ""
    close = [word for word in words if word.startswith(bare)][:1] or difflib.get_close_matches(bare, words, n=1)
    return f" (did you mean {words[close[0]]}?)" if close else ""


def connect_timeout_option(whom: str) -> Decorator[Any]:
    """Adds --connect-timeout; `whom` says for people who is waited for."""
    return click.option(
        "--connect-timeout",
        type=Real(above=0),
        default=60.0,
        show_default=True,
        help=f"Seconds to wait for {whom}.",
    )


class Flag(click.Option):
    """A click option that --help shows under a topic of its own; `topic` is that heading."""

    def __init__(self, *args: Any, topic: str, **more: Any) -> None:
        super().__init__(*args, **more)
        self.topic = topic


class _Strict:
    """Refuses options that do not exist, naming what was typed; --help is as wide as a terminal of 120 columns."""

    def __init__(self, *args: Any, **more: Any) -> None:
        settings = {"max_content_width": 120, "help_option_names": ["-h", "--help"]}
        more["context_settings"] = {**settings, **(more.get("context_settings") or {})}
        super().__init__(*args, **more)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        typed = list(args)
        try:
            return super().parse_args(ctx, args)  # type: ignore[misc, no-any-return]  # mixed into click.Command
        except click.NoSuchOption as error:
            raise unknown_option(error.option_name, typed, ctx) from None


class Command(_Strict, click.Command):
    """A click command whose unknown options are errors with a suggestion; there are no abbreviations."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Takes what was typed; a word that no flag takes is refused, and a list that is given in two pieces."""
        typed = list(args)
        only_flags, ctx.allow_extra_args = not ctx.allow_extra_args, True
        left = super().parse_args(ctx, args)
        if ctx.resilient_parsing:  # A shell asks what could come next, and shows no errors.
            return left
        if only_flags and ctx.args:
            hint = f" (did you mean --model {ctx.args[0]}?)" if "model" in ctx.params else ""
            raise click.UsageError(f"unexpected argument {ctx.args[0]}{hint}", ctx)
        if (flag := self._list_given_twice(ctx, typed)) is not None:
            raise click.UsageError(f"{flag}: given twice; it takes one list: {flag} A,B", ctx)
        return left

    def _list_given_twice(self, ctx: click.Context, typed: list[str]) -> str | None:
        """An option whose value is a list; click would take the last one and be silent about the others."""
        given = self.make_parser(ctx).parse_args(args=typed)[2]
        for param in dict.fromkeys(given):
            metavar = param.metavar if isinstance(param, click.Option) and not param.multiple else None
            if metavar and metavar.endswith(",...") and given.count(param) > 1:
                return param.opts[0]
        return None

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command; an error that names a flag out of a file has its place there."""
        try:
            return super().invoke(ctx)
        except Exception as error:
            placed = ctx.meta[PLACES](error) if PLACES in ctx.meta else error
            if placed is error:
                raise
            raise placed from None

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the options under their topics, in the order in which these come."""
        topics: dict[str, list[tuple[str, str]]] = {}
        for param in self.get_params(ctx):
            # The usage line has the arguments, and the command's own text says what they are.
            record = param.get_help_record(ctx) if isinstance(param, click.Option) else None
            if record is not None:
                topics.setdefault(param.topic if isinstance(param, Flag) else "Options", []).append(record)
        for topic, records in topics.items():
            with formatter.section(topic):
                formatter.write_dl(records, col_max=34)


class Group(_Strict, click.Group):
    """A click group of such commands, which suggests for unknown subcommands too."""

    command_class = Command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the subcommand, or raises click.UsageError with a suggestion."""
        known = self.list_commands(ctx)
        if args and not args[0].startswith("-") and args[0] not in known:
            shown = [name for name in known if not self.commands[name].hidden]
            hint = did_you_mean(args[0], shown) or f"; there are {', '.join(shown)}"
            raise click.UsageError(f"unknown command {args[0]}{hint}", ctx)
        return super().resolve_command(ctx, args)


def unknown_option(option: str, typed: list[str], ctx: click.Context) -> click.UsageError:
    """Describes an option that does not exist by what was typed: click names only the first letter of `-shard=1`."""
    known = [opt for param in ctx.command.get_params(ctx) for opt in (*param.opts, *param.secondary_opts)]
    if not option.startswith("--"):
        option = next((arg for arg in typed if arg.startswith(option)), option)
    wanted = "--" + option.lstrip("-").partition("=")[0]
    if isinstance(ctx.command, click.Group) and _of_a_command(wanted, ctx.command):
        return click.UsageError(f"{wanted}: comes after the command: {ctx.info_name} COMMAND {wanted} ...", ctx)
    hint = f" (did you mean {wanted}?)" if wanted in known else did_you_mean(wanted, known)
    return click.UsageError(f"unknown option {option}{hint}", ctx)


def _of_a_command(option: str, group: click.Group) -> bool:
    return any(option in param.opts for command in group.commands.values() for param in command.params)


def flag_of(name: str) -> str:
    """Returns the flag of a parameter, `--max-staleness` of `max_staleness`."""
    return "--" + name.replace("_", "-")


def typed(flags: Mapping[str, Any]) -> list[str]:
    """Returns flags as a user would type them; None is not given, a tuple is given item by item."""
    return [text for name, value in flags.items() for text in _typed(flag_of(name), value)]


def _typed(flag: str, value: Any) -> list[str]:
    if value is None:
        return []
    if isinstance(value, bool):
        return [flag if value else flag.replace("--", "--no-", 1)]
    if isinstance(value, tuple):
        return [text for item in value for text in (flag, str(item))]
    return [flag, str(value)]
