"""Which of the machine's cores a process may use: the lists of flags, and how a process keeps to one."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from grpc_ps.client.shared.flags import refusal

if TYPE_CHECKING:
    _CoresType = click.ParamType[tuple[int, ...]]
else:  # older versions of click have no parameters here
    _CoresType = click.ParamType

_ITEM = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_FORM = "must be a list of cores: 0, 0,2 or 0-3"
_TASKS = Path("/proc/self/task")


class Cores(_CoresType):
    """A list of cores as `taskset -c` takes it; becomes their numbers in the order given, each once."""

    name = "cores"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Shows what it is in --help."""
        return "LIST"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[int, ...]:
        """Returns the numbers, or raises click.UsageError."""
        if isinstance(value, tuple):
            return value
        try:
            return parse_cores(str(value))
        except ValueError as error:
            raise refusal(param, ctx, value, str(error)) from None


def parse_cores(text: str) -> tuple[int, ...]:
    """Reads `0,2-3`. Raises ValueError with the rule."""
    cores: list[int] = []
    for item in text.split(","):
        found = _ITEM.fullmatch(item.strip())
        first, last = (int(found[1]), int(found[2] or found[1])) if found else (1, 0)
        if last < first:
            raise ValueError(_FORM)
        cores += range(first, last + 1)
    return tuple(dict.fromkeys(cores))


def allowed_cores() -> tuple[int, ...]:
    """Returns the cores that this process may use, of those that the system and its control groups leave it."""
    if hasattr(os, "sched_getaffinity"):
        return tuple(sorted(os.sched_getaffinity(0)))
    return tuple(range(os.cpu_count() or 1))


def listed(cores: Sequence[int]) -> str:
    """Returns cores as a flag takes them."""
    return ",".join(map(str, cores))


def pin(cores: Sequence[int], flag: str = "--cores") -> None:
    """Keeps this process to those cores: its threads, and all that they start.

    To be called before TensorFlow is imported, which starts one thread for each core that the process may use.

    Raises:
        click.UsageError: one of them does not exist or is not allowed, or the system has no such call.
    """
    if not hasattr(os, "sched_setaffinity"):
        raise click.UsageError(f"{flag} {listed(cores)}: this system does not let a process choose its cores")
    if missing := set(cores) - set(allowed_cores()):
        raise click.UsageError(
            f"{flag} {listed(cores)}: no core {min(missing)} here; there are {listed(allowed_cores())}"
        )
    # Threads that run already are not meant by the process's own number.
    threads = [int(task.name) for task in _TASKS.iterdir()] if _TASKS.is_dir() else [0]
    for thread in threads:
        try:
            os.sched_setaffinity(thread, cores)
        except ProcessLookupError:  # It has ended meanwhile.
            continue
        except OSError as error:
            raise click.UsageError(f"{flag} {listed(cores)}: {error.strerror}") from None
