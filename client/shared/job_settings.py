"""Settings of a job as a program gives them, by keyword: checked as the flags of the same names are."""

from __future__ import annotations

import numbers
import re
from collections.abc import Mapping, Sequence
from typing import Any

import click

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.flag_forms import NO_BOUND
from grpc_ps.client.shared.flags import did_you_mean, typed
from grpc_ps.client.shared.job_flags import check_job_flags, job_options, stated_flags


def checked_settings(settings: Mapping[str, Any], *, others: Sequence[str] = ()) -> dict[str, Any]:
    """The settings in the form that flags give them, by their names in `job.proto`; what is None is left out.

    Args:
        settings: by the names of the flags, `max_staleness=2`.
        others: further keywords of whoever is called, which a mistyped one may mean.

    Raises:
        UsageError: one line with the keyword, its value and what is allowed.
    """
    command = job_options()(click.Command("settings"))
    words = as_flags(settings, others=others)
    try:
        found = command.make_context("settings", typed(words)).params
        check_job_flags(found)
    except click.UsageError as error:
        text = error.format_message()
        for param in command.params:
            text = text.replace("/".join(param.opts), str(param.name))
        raise UsageError(by_keyword(text)) from None
    return stated_flags(found)


def as_flags(settings: Mapping[str, Any], *, others: Sequence[str] = ()) -> dict[str, Any]:
    """The settings as they would be typed; raises UsageError for names and types that no flag has."""
    options = {option.name: option for option in job_options()(click.Command("settings")).params}
    words: dict[str, Any] = {}
    for name, value in settings.items():
        if name not in options:
            short = [str(option.name) for option in options.values() if f"--{name}" in option.opts]
            hint = f" (did you mean {short[0]}?)" if short else did_you_mean(name, [*map(str, options), *others])
            raise UsageError(f"{name}: is no setting of a job{hint}")
        if value is not None:
            words[name] = _word(name, value, options[name])
    return words


def _word(name: str, value: Any, option: click.Parameter) -> Any:
    if isinstance(option, click.Option) and option.is_flag:
        if not isinstance(value, bool):
            raise UsageError(f"{name} {value!r}: must be True or False")
        return value
    if isinstance(value, bool) or not isinstance(value, (str, numbers.Real)):
        raise UsageError(f"{name} {value!r}: must be a word or a number, not of type {type(value).__name__}")
    return "none" if name == "max_staleness" and value == NO_BOUND else str(value)


def by_keyword(text: str) -> str:
    """What is said to whoever types flags, for whoever gives keywords: `max_staleness` for `--max-staleness`."""
    return re.sub(r"--([a-z][a-z0-9-]*)", lambda flag: flag[1].replace("-", "_"), text)
