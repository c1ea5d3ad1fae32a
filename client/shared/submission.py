"""What a job that a client submits may say: looked at by the client, by the lead, and by whoever carries it out."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.flags import flag_of

OPTIONS: Mapping[str, bool] = MappingProxyType(
    {"data": True, "data_dir": True, "download": False, "init_from": True, "overlap": False, "logdir": True}
)
"""Flags of a worker that a job may bring, by their names: whether each takes a value. Settings of the job come apart.

What says who a worker is, and whom it trusts, is not among them: that is the standing worker's own.
"""

MAX_NAME = 100
MAX_VALUE = 1000
"""Characters of a job's name, and of an option's value or an argument."""
MAX_ARGUMENTS = 100
MAX_MEMBERS = 1_000_000

_MODEL = re.compile(r"[a-z][a-z0-9_]{0,63}")
_ARGUMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=.*", re.DOTALL)


def check_submission(
    *, name: str, model: str, arguments: Sequence[str], options: Mapping[str, str], members: int = 0
) -> None:
    """Refuses what no honest client sends, and what would need code to travel.

    Raises:
        UsageError: names the flag and what is wrong with it.
    """
    _check_text("--name", name, MAX_NAME)
    check_registered(model)
    if len(arguments) > MAX_ARGUMENTS:
        raise UsageError(f"--model-arg: a job has at most {MAX_ARGUMENTS} of them, not {len(arguments)}")
    for argument in arguments:
        _check_text("--model-arg", argument, MAX_VALUE)
        if not _ARGUMENT.fullmatch(argument):
            raise UsageError(f"--model-arg {argument}: must be NAME=VALUE")
    for option, value in options.items():
        if option not in OPTIONS:
            raise UsageError(f"a job cannot bring the option {option[:MAX_NAME]!r}; there are: {', '.join(OPTIONS)}")
        flag = flag_of(option)
        if option == "data":
            _check_named(flag, value)
        _check_text(flag, value, MAX_VALUE)
        if not value or (not OPTIONS[option] and value != "true"):
            raise UsageError(f"{flag}: its value cannot be {value!r}")
    if members > MAX_MEMBERS:
        raise UsageError(f"--workers {members}: must be 1 to {MAX_MEMBERS}")


def check_registered(model: str) -> None:
    """Refuses a model that is not named as registered ones are. Raises UsageError."""
    if _MODEL.fullmatch(model):
        return
    _check_named("--model", model)
    raise UsageError(f"--model {model[:MAX_NAME]!r}: is no model's name")


def _check_named(flag: str, value: str) -> None:
    """Refuses what is somebody's own code: file.py:attribute, package.module:attribute."""
    if ":" in value or value.endswith(".py") or (flag == "--model" and any(mark in value for mark in "./")):
        raise UsageError(
            f"{flag} {value[:MAX_NAME]!r}: no code travels, so a job that is submitted has a registered model and data "
            f"that needs none; for your own start `worker --model` on each machine"
        )


def _check_text(flag: str, text: str, most: int) -> None:
    if len(text) > most:
        raise UsageError(f"{flag}: has at most {most} characters, not {len(text)}")
    if not text.isprintable():
        raise UsageError(f"{flag} {text!r}: has characters that cannot be printed")
