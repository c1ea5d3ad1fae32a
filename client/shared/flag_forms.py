"""The small languages of some flags' values: a schedule, a metric to end or to choose by, a bound that may be none."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from itertools import pairwise
from types import MappingProxyType
from typing import Any

import click

from grpc_ps.client.shared.flags import Whole, refusal

MAX_I31 = (1 << 31) - 1
# As the setting has it: no bound on staleness.
NO_BOUND = -1

# Metrics of which the name says in which direction they get better; those named after a loss or an error fall too.
_BETTER: Mapping[str, str] = MappingProxyType(
    {
        **dict.fromkeys(("accuracy", "precision", "recall", "auc", "f1"), ">="),
        **dict.fromkeys(("mse", "mae", "rmse"), "<="),
    }
)
_MAX_STEPS = (1 << 63) - 1
_SCHEDULES = (
    "constant, exponential:STEPS:RATE, staircase:STEPS:RATE, piecewise:STEP=RATE,STEP=RATE,... or cosine:STEPS[:ALPHA]"
)


class Bound(Whole):
    """A whole number, or the word `none` for no bound, which becomes -1 as in the setting."""

    def __init__(self) -> None:
        super().__init__(0, MAX_I31)

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Shows both in --help."""
        return "INTEGER|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number, or raises click.UsageError."""
        if value == "none":
            return NO_BOUND
        try:
            return super().convert(value, param, ctx)
        except click.UsageError:
            raise refusal(param, ctx, value, f"must be a whole number, 0 to {MAX_I31}, or none") from None


def until(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Writes the end by a metric as the setting has it, with a direction; a click callback.

    METRIC=NUMBER is for metrics whose direction is known. A guess would end a job at its first evaluation, as done.
    """
    if value is None:
        return None
    found = re.fullmatch(r"\s*(\w+)\s*(>=|<=|=)\s*(\S+)\s*", value)
    number = _number(found[3]) if found else math.nan
    if found is None or not math.isfinite(number):
        raise refusal(param, ctx, value, "must be METRIC>=NUMBER, METRIC<=NUMBER or METRIC=NUMBER")
    metric, relation = found[1], found[2]
    if relation == "=":
        relation = _better(metric)
    if not relation:
        forms = f"{metric}<={found[3]} or {metric}>={found[3]}"
        raise refusal(param, ctx, value, f"whether {metric} is to rise or to fall is not known; write {forms}")
    return f"{metric}{relation}{number!r}"


def best_by(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Writes a metric to choose by as `METRIC>` (more is better) or `METRIC<`; a click callback.

    METRIC alone is for metrics whose direction is known, as with `until`: a guess would keep the worst.
    """
    if value is None:
        return None
    found = re.fullmatch(r"\s*(\w+)\s*([<>]?)\s*", value)
    if found is None:
        raise refusal(param, ctx, value, "must be METRIC, 'METRIC>' (more is better) or 'METRIC<' (less is better)")
    metric = found[1]
    relation = found[2] or _better(metric)[:1]
    if not relation:
        forms = f"'{metric}>' or '{metric}<'"
        raise refusal(param, ctx, value, f"whether more or less of {metric} is better is not known; write {forms}")
    return metric + relation


def _better(metric: str) -> str:
    """Returns ">=" for a metric that is to rise, "<=" for one that is to fall, "" where its name does not say."""
    name = metric.lower()
    return "<=" if "loss" in name or "error" in name else _BETTER.get(name, "")


def schedule(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Refuses what is no schedule; a click callback. The lead has the same rules (`psserver/lead/schedule.py`)."""
    if value is not None and not _is_schedule(value):
        raise refusal(
            param, ctx, value, f"must be {_SCHEDULES}; STEPS at least 1, STEP rising, RATE above 0, ALPHA 0 to 1"
        )
    return value


def _is_schedule(text: str) -> bool:
    kind, *arguments = text.split(":")
    match kind, arguments:
        case "constant", []:
            return True
        case (("exponential" | "staircase"), [steps, rate]):
            return _is_steps(steps) and _number(rate) > 0
        case "cosine", [steps]:
            return _is_steps(steps)
        case "cosine", [steps, alpha]:
            return _is_steps(steps) and 0 <= _number(alpha) <= 1
        case "piecewise", [pairs]:
            return _is_piecewise(pairs)
    return False


def _is_piecewise(text: str) -> bool:
    pairs = [pair.partition("=") for pair in text.split(",")]
    if not all(_is_steps(step) and _number(rate) > 0 for step, _, rate in pairs):
        return False
    return all(int(one) < int(other) for (one, *_), (other, *_) in pairwise(pairs))


def _is_steps(text: str) -> bool:
    # Python refuses to read thousands of digits.
    return text.isascii() and text.isdecimal() and len(text) < 99 and 1 <= int(text) <= _MAX_STEPS


def _number(text: str) -> float:
    """Returns the number, or NaN, which no comparison holds for, where the text is no finite one."""
    try:
        number = float(text)
    except ValueError:
        return math.nan
    return number if math.isfinite(number) else math.nan
