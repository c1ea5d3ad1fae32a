"""Are the targets met? Runs the scripts that answer them and makes one table, one file of JSON and one plot.

The short form takes single pairs and few seconds, and on a slow machine leaves out what there is no time for: it shows
what has broken, not what has become a little better.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
import time
from collections.abc import Mapping, MutableMapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any

from machine import about
from plan import PLOTTED, RUNS, Run
from plot import Point, svg
from processes import processes, run_to_end, script
from table import line_text, table
from targets import TARGETS

from grpc_ps.client.processes import Exited, Line, ProcessGroup, last_lines

Found = MutableMapping[str, list[Any]]
"""Comparisons by the key of their line."""

# Seconds for one script, and for all of the short form: what has not ended by then is not measured.
_LONGEST = 3600.0
_QUICK = 165.0
# Seconds for a script to end what it has started, whose grace is shorter.
_GRACE = 60.0
_NO_TIME = "not measured: no time was left"


def main() -> None:
    arguments = parse_arguments()
    begun = about(quick=arguments.quick)
    started = time.monotonic()
    found = earlier(arguments.out, begun) if arguments.only else {}
    failed = measure(arguments, found)
    record = {**begun, "seconds": round(time.monotonic() - started, 1), **judged(found), "failed": failed}
    arguments.out.parent.mkdir(parents=True, exist_ok=True)
    arguments.out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    if points := _points(found):
        picture = svg(points, "Training mnist's network, 2 workers, asynchronous")
        arguments.out.with_suffix(".svg").write_text(picture, encoding="utf-8")
    print(f"\n{table(record['lines'], begun)}\n{record['seconds']:.0f} s; {arguments.out}")
    for key, why in failed.items():
        print(f"{key}: {why}")
    sys.exit(1 if failed else 0)


def judged(found: Found) -> dict[str, Any]:
    """The table's lines in its order, and what is for the plot alone."""
    lines = [target.judge(found[target.key]) for target in TARGETS if target.key in found]
    return {"lines": lines, PLOTTED: found.get(PLOTTED, [])}


def earlier(path: Path, begun: Mapping[str, Any]) -> dict[str, list[Any]]:
    """What is in the file of a run before, if that was in the same form, on this machine and with these versions."""
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    if any(record.get(name) != begun[name] for name in ("quick", "machine", "versions")):
        return {}
    lines = {line["key"]: line["comparisons"] for line in record["lines"]}
    return lines | ({PLOTTED: record[PLOTTED]} if record[PLOTTED] else {})


def measure(arguments: argparse.Namespace, found: Found) -> dict[str, str]:
    """Adds comparisons by key; returns why there are none of the others. A script that fails does not keep the rest."""
    failed: dict[str, str] = {}
    deadline = time.monotonic() + _QUICK if arguments.quick else math.inf
    for run in RUNS:
        keys = [key for key in run.keys if not arguments.only or key in arguments.only]
        if not keys or (arguments.quick and run.quick is None):
            continue
        more = _peer_flags(arguments) if run.peers else []
        comparisons, why = call(run, [*run.arguments(quick=arguments.quick), *more], deadline)
        failed |= dict.fromkeys(keys, why) if why else {}
        for key, some in run.split(comparisons).items() if comparisons else ():
            found[key] = list(some)
            print(line_text(key, some), flush=True)
    return failed


def call(run: Run, flags: Sequence[str], deadline: float) -> tuple[list[Any], str]:
    """The comparisons of one script, or the reason that there are none."""
    deadline = min(deadline, time.monotonic() + _LONGEST)
    if time.monotonic() >= deadline:
        return [], _NO_TIME
    with processes(_GRACE) as group:
        child = group.start(run.script, [*script(run.script), *flags])
        output = _output(group, deadline)
        if child.code is None:
            return [], _NO_TIME
        if output is None or child.code:
            return [], (last_lines([child]) or ["nothing came of it"])[-1]
        return json.loads(output)["comparisons"], ""


def _output(group: ProcessGroup, deadline: float) -> str | None:
    """The line of JSON that a script has ended with, if it has."""
    found = None
    while (event := group.wait(deadline)) is not None and not isinstance(event, Exited):
        if isinstance(event, Line) and event.stdout and event.text.startswith("{"):
            found = event.text
    return found


def _peer_flags(arguments: argparse.Namespace) -> list[str]:
    flags = {"--peer": arguments.peer, "--data-dir": arguments.data_dir}
    return [word for flag, value in flags.items() if value for word in (flag, str(value))]


def _points(found: Mapping[str, list[Any]]) -> list[Point]:
    """What is plotted: the models of several sizes, or in the short form the two of the table."""
    shown = found.get(PLOTTED) or [*found.get("async-2", []), *found.get("large", [])]
    return [Point(nbytes=each["nbytes"], ours=median(each["ours"]), other=median(each["other"])) for each in shown]


def parse_arguments() -> argparse.Namespace:
    keys = [key for run in RUNS for key in run.keys]
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--quick", action="store_true", help="the short form, under three minutes")
    parser.add_argument("--only", type=lambda text: text.split(","), help=f"some of {', '.join(keys)}; the others stay")
    parser.add_argument("--peer", type=Path, help="another script in place of TensorFlow's runtime: see README.md")
    parser.add_argument("--data-dir", type=Path, help="folder with MNIST's files; default: random images")
    parser.add_argument("--out", type=Path, default=Path("build", "bench.json"), help="the plot goes beside it")
    arguments = parser.parse_args()
    if unknown := set(arguments.only or ()) - set(keys):
        parser.error(f"--only: {', '.join(sorted(unknown))} is none of {', '.join(keys)}")
    return arguments


if __name__ == "__main__":
    run_to_end(main)
