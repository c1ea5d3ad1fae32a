"""The printed table of a whole run. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from figures import Spread
from targets import TARGETS

_BY_KEY = {target.key: target for target in TARGETS}
_HEAD = ("work", "beside", "ours", "other", "ratio (min to max)", "target", "stretch", "")


def table(lines: Sequence[Mapping[str, Any]], about: Mapping[str, Any]) -> str:
    """The records of `Target.judge`, a line each, under the machine and the versions."""
    rows = [_HEAD, *(_row(line) for line in lines)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEAD))]
    shown = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return "\n".join([*_about(about), "", *shown, "", _verdict(lines)])


def line_text(key: str, comparisons: Sequence[Mapping[str, Any]]) -> str:
    """One line as soon as it is measured, a comparison each."""
    return "\n".join(f"{key:<15} {each['name']:<36} {Spread(**each['ratio']).range()}" for each in comparisons)


def _row(line: Mapping[str, Any]) -> tuple[str, ...]:
    target = _BY_KEY[line["key"]]
    judged = next(each for each in line["comparisons"] if each["name"] == line["judged"])
    ours, other = (f"{Spread.of(judged[side]).median:.4g}" for side in ("ours", "other"))
    several = f" ({judged['name']})" if len(line["comparisons"]) > 1 else ""
    ratio = Spread(**line["ratio"]).range()
    bounds = [target.bound(line[name]) for name in ("target", "stretch")]
    return (line["work"] + several, line["beside"], ours, other, ratio, *bounds, _word(line))


def _word(line: Mapping[str, Any]) -> str:
    if not line["met"]:
        return "NOT MET"
    return "met, stretch too" if line["stretch_met"] else "met"


def _about(about: Mapping[str, Any]) -> Iterator[str]:
    machine, versions = about["machine"], about["versions"]
    yield f"{machine['cores']} cores, {machine['cpu']}, {machine['memory_gib']:g} GiB; {machine['system']}"
    yield ", ".join(f"{name} {version}" for name, version in versions.items())
    yield f"{about['begun']}{', the short form' if about['quick'] else ''}"


def _verdict(lines: Sequence[Mapping[str, Any]]) -> str:
    missed = [line["key"] for line in lines if not line["met"]]
    return f"{len(lines) - len(missed)} of {len(lines)} met" + (f"; not met: {', '.join(missed)}" if missed else "")
