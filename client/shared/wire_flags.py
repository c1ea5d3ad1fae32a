"""The flags that say in which form gradients and parameters travel."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import click

from grpc_ps.client.shared.flags import Decorated, Decorator, Flag, OneOf, refusal
from grpc_ps.client.shared.wire_form import WIRE_DTYPES, parse_compress

_BOTH = "grpc_ps.wire_dtype"
_PUSH = "grpc_ps.push_dtype"
_COMPRESS = "grpc_ps.compress"


def wire_flags() -> dict[str, Decorator[Any]]:
    """By the names of the settings. --wire-dtype is both types in one flag and no setting."""
    option = partial(click.option, cls=Flag, topic="Settings of the job: what travels")
    dtype = partial(option, type=OneOf(*WIRE_DTYPES))
    both = option(
        "--wire-dtype",
        type=OneOf(*WIRE_DTYPES),
        callback=_both,
        is_eager=True,
        expose_value=False,
        help="Both of the next two. float32 is exact; the others halve what travels.",
    )
    push = dtype(
        "--push-dtype", callback=_push, help="Type of gradients on the way; what is lost by it goes with the next push."
    )

    def push_and_both(command: Decorated) -> Decorated:
        return both(push(command))

    return {
        "push_dtype": push_and_both,
        "pull_dtype": dtype("--pull-dtype", callback=_one, help="Type of parameters on the way to workers."),
        "compress": option(
            "--compress",
            metavar="topk:RATIO",
            callback=_compress,
            help="Send only that part of each gradient's elements, the largest; the others add up until they are."
            " RATIO is below 1/2, in 16 bits below 1/3: else pushes are not shorter.",
        ),
    }


def _both(ctx: click.Context, param: click.Parameter, value: str | None) -> None:
    ctx.meta[_BOTH] = value


def _one(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    both: str | None = ctx.meta.get(_BOTH)
    return both if value is None else value


def _push(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    value = ctx.meta[_PUSH] = _one(ctx, param, value)
    if value and _COMPRESS in ctx.meta:
        compress, typed = ctx.meta[_COMPRESS]
        _check_compress(ctx, compress, typed, value)
    return value


def _check_compress(ctx: click.Context, param: click.Parameter, value: str, push_dtype: str) -> None:
    try:
        parse_compress(value, push_dtype)
    except ValueError as error:
        raise refusal(param, ctx, value, str(error)) from None


def _compress(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Writes the ratio in one way, since processes are compared by it.

    Flags are taken as they are typed: whichever of this one and --push-dtype comes later is checked with the other.
    """
    if not value:
        return value
    ctx.meta[_COMPRESS] = param, value
    _check_compress(ctx, param, value, ctx.meta.get(_PUSH) or "float32")
    digits = value.removeprefix("topk:").partition(".")[2].rstrip("0")
    return f"topk:0.{digits}"


def what_travels(settings: Mapping[str, Any]) -> str:
    """Returns in a few words what does not travel as it is; empty where everything does."""
    parts = [str(settings.get("compress", ""))]
    push, pull = (str(settings.get(name) or "float32") for name in ("push_dtype", "pull_dtype"))
    if push == pull != "float32":
        parts.append(f"{push} both ways")
    else:
        parts += [f"{name} in {dtype}" for name, dtype in (("pushes", push), ("pulls", pull)) if dtype != "float32"]
    return ", ".join(filter(None, parts))
