"""`--config FILE`: flags from a TOML file, for whatever the command line leaves out."""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from grpc_ps.client.shared.flags import PLACES, Decorated, FilePath, did_you_mean

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

COMMANDS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "psserver": ("grpc_ps.psserver.command", "psserver"),
        "worker": ("grpc_ps.worker.command", "worker"),
        "launch": ("grpc_ps.client.commands.launch", "launch"),
        "submit": ("grpc_ps.client.commands.submit", "submit"),
    }
)
"""Where the commands are that read such files, by the names of their tables.

Named, not imported: another command is only looked at when the file has a key that this one does not know.
"""
_OPTION = "config"

_NAME = r"""(?:"[^"]*"|'[^']*'|[\w-]+)"""
_DOTTED = rf"({_NAME}(?:\s*\.\s*{_NAME})*)"
_HEADER = re.compile(rf"\s*\[+\s*{_DOTTED}\s*\]")
_KEY = re.compile(rf"\s*{_DOTTED}\s*=")


def config_option(table: str) -> Callable[[Decorated], Decorated]:
    """Adds --config to the command whose own table in the file is `table`."""
    return click.option(
        f"--{_OPTION}",
        metavar="FILE",
        type=FilePath(dir_okay=False),
        is_eager=True,
        expose_value=False,
        callback=partial(_fill_in, table),
        help=f"TOML file with flags, at the top or in [{table}]; what is typed here wins.",
    )


def _fill_in(table: str, ctx: click.Context, param: click.Parameter, path: Path | None) -> None:
    """Makes the file's values the defaults of the command's flags."""
    if path is not None:
        file = _ConfigFile(path, table, ctx)
        ctx.default_map = {**(ctx.default_map or {}), **file.defaults()}
        ctx.meta[PLACES] = file.say_where


class _ConfigFile:
    """A file as one command reads it: what stands at the top for all commands, and the command's own table, which wins.

    Each value is checked as if it had been typed, so that what is wrong with it is told with its place in the file;
    what the command finds wrong later, looking at several flags or at a model, too.
    """

    def __init__(self, path: Path, table: str, ctx: click.Context) -> None:
        self._path = path
        self._table = table
        self._ctx = ctx
        self._options = options_of(ctx.command)
        self._text = _read(path)
        # Tables and keys that have given a value, by the names of the parameters.
        self._origins: dict[str, tuple[str, str]] = {}

    def defaults(self) -> dict[str, Any]:
        """Values by the names of the command's parameters.

        Raises:
            click.UsageError: names file, line and key.
        """
        try:
            whole = tomllib.loads(self._text)
        except tomllib.TOMLDecodeError as error:
            raise click.UsageError(self._unreadable(str(error)), self._ctx) from None
        tables = {name: whole.pop(name) for name in COMMANDS if name in whole}
        for name, table in tables.items():
            if not isinstance(table, dict):
                raise self._refused("", name, f"is a table of flags: [{name}]")
        return {**self._values("", whole), **self._values(self._table, tables.get(self._table, {}))}

    def say_where(self, error: Exception) -> Exception:
        """The error; where it names a flag that the file has given, with that one's place in front."""
        from grpc_ps.client.shared.errors import PsError  # It imports gRPC, which the process is prepared for by now.

        text = error.format_message() if isinstance(error, click.UsageError) else str(error)
        params = (self._options.get(key) for key in re.findall(r"--([a-z][a-z0-9-]*)", text))
        names = [str(param.name) for param in params if param is not None and self._gives(str(param.name))]
        if not names:
            return error
        placed = f"{self._place(*self._origins[names[0]])}: {text}"
        if isinstance(error, click.UsageError):
            return click.UsageError(placed, error.ctx)
        if isinstance(error, PsError):
            error.args = (placed,)
        return error

    def _gives(self, name: str) -> bool:
        source = self._ctx.get_parameter_source(name)
        return name in self._origins and source is click.core.ParameterSource.DEFAULT_MAP

    def _unreadable(self, why: str) -> str:
        """What keeps the file from being read, with its line: a library's words, which end with "(at line 2, ...)"."""
        if ("overwrite" in why or "twice" in why) and (twice := self._given_twice()) is not None:
            return twice
        found = re.fullmatch(r"(.*) \(at line (\d+), (column \d+)\)", why)
        if found is None:
            return f"{self._path}: {why}"
        hint = "; text stands in quotes" if found[1] == "Invalid value" else ""
        return f"{self._path}:{found[2]}: {found[1]} ({found[3]}){hint}"

    def _given_twice(self) -> str | None:
        seen: dict[tuple[str, ...], int] = {}
        for number, path in self._entries():
            if (first := seen.setdefault(path, number)) != number:
                return f"{self._path}:{number}: {'.'.join(path)}: is given twice, first in line {first}"
        return None

    def _values(self, table: str, entries: Mapping[str, Any]) -> dict[str, Any]:
        values: dict[str, Any] = {}
        for key, value in entries.items():
            param = self._options.get(key)
            if param is None:
                self._check_known(table, key, value)
                continue
            if param.name in values:
                raise self._refused(table, key, f"the same flag as {' and '.join(_keys(param))}; give one of them")
            values[str(param.name)] = self._checked(table, key, value, param)
            self._origins[str(param.name)] = table, key
        return values

    def _check_known(self, table: str, key: str, value: Any) -> None:
        """Refuses a key that this command does not have, unless it is there for all and another one has it."""
        if key == _OPTION:
            raise self._refused(table, key, f"a file of flags names no other; give --{_OPTION} on the command line")
        others = {name: options_of(_command(name)).keys() for name in COMMANDS}
        having = [name for name, keys in others.items() if key in keys]
        if having and not table:
            return
        if having:
            which = f"{' and '.join(having)} {'have' if len(having) > 1 else 'has'} that flag"
            why = f"unknown key in [{table}]: {which}; put it at the top, or into such a table"
            raise self._refused(table, key, why)
        known = sorted({*self._options}.union(*([] if table else others.values())))
        if not table and isinstance(value, dict):
            raise self._refused(table, key, f"unknown table{did_you_mean(key, [*COMMANDS, *known])}")
        raise self._refused(table, key, f"unknown key{did_you_mean(key, known)}")

    def _checked(self, table: str, key: str, value: Any, param: click.Option) -> Any:
        """The value in the form that click's defaults have; what converting it says is told with its place."""
        try:
            typed = _typed(value, param)
            converted = param.type_cast_value(self._ctx, typed)
            if param.callback is not None:
                param.callback(self._ctx, param, converted)
        except ValueError as error:
            raise self._refused(table, key, str(error)) from None
        except click.UsageError as error:
            raise click.UsageError(f"{self._place(table, key)}: {error.format_message()}", self._ctx) from None
        return typed

    def _refused(self, table: str, key: str, why: str) -> click.UsageError:
        return click.UsageError(f"{self._place(table, key)}: {key}: {why}", self._ctx)

    def _place(self, table: str, key: str) -> str:
        """File and line, as far as the line can be told: the library that reads the file does not keep it."""
        wanted = (table, key) if table else (key,)
        lines = (number for number, path in self._entries() if path[: len(wanted)] == wanted)
        return ":".join([str(self._path), *(str(number) for number in lines)][:2])

    def _entries(self) -> Iterator[tuple[int, tuple[str, ...]]]:
        """The lines that begin a table or a value, each with that one's names from the top."""
        header: tuple[str, ...] = ()
        for number, line in enumerate(self._text.splitlines(), 1):
            if (found := _HEADER.match(line)) is not None:
                header = _names(found[1])
                yield number, header
            elif (found := _KEY.match(line)) is not None:
                yield number, (*header, *_names(found[1]))


def _names(dotted: str) -> tuple[str, ...]:
    return tuple(name.strip("\"'") for name in re.findall(_NAME, dotted))


def options_of(command: click.Command) -> dict[str, click.Option]:
    """A command's flags by their keys in a file: their long names, without the dashes."""
    options = [param for param in command.params if isinstance(param, click.Option) and param.name != _OPTION]
    return {key: option for option in options for key in _keys(option)}


def _keys(option: click.Option) -> list[str]:
    return [name.removeprefix("--") for name in option.opts if name.startswith("--")]


def _command(name: str) -> click.Command:
    module, attribute = COMMANDS[name]
    command: click.Command = getattr(importlib.import_module(module), attribute)
    return command


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError as error:
        raise click.UsageError(f"--{_OPTION} {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        raise click.UsageError(f"--{_OPTION} {path}: is no text in UTF-8") from None


def _typed(value: Any, option: click.Option) -> Any:
    """A value of the file as the words of a command line, so that both are converted and checked alike.

    Raises:
        ValueError: it has a form that the flag does not take.
    """
    if option.is_flag:
        if not isinstance(value, bool):
            raise ValueError("must be true or false")
        return value
    if isinstance(value, dict) and option.multiple:
        return [f"{name}={_word(each)}" for name, each in value.items()]
    if isinstance(value, list):
        words = [_word(each) for each in value]
        return words if option.multiple else ",".join(words)
    word = _word(value)
    return [word] if option.multiple else word


def _word(value: Any) -> str:
    if isinstance(value, bool) or not isinstance(value, (str, int, float)):
        raise ValueError(f"takes no {_KINDS.get(type(value), 'date or time')}")
    return str(value)


_KINDS: Mapping[type, str] = MappingProxyType({bool: "true or false", list: "list", dict: "table"})
