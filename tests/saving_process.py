"""A job that does nothing but save: a lead and another shard, two processes, and one of them may be killed at a point.

    python saving_process.py DIR STEPS WHO POINT NTH

WHO is lead or shard, and is killed when it comes to POINT for the NTH time. POINT may be `timer`: then NTH are the
microseconds from its first save on after which the kernel kills it, wherever it is. Each step that is committed is a
line of stdout.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from checkpoints import RUN, manifest, pieces_of, saving_name, state

from grpc_ps.client.shared.blocks import ParameterSpec
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_format import At, part_name
from grpc_ps.client.shared.checkpoint_manifest import Part
from grpc_ps.client.shared.checkpoint_part import write_part
from grpc_ps.client.shared.logs import setup_logging

SPECS = (
    ParameterSpec(name="dense/kernel", shape=(500, 300), dtype="float32"),
    ParameterSpec(name="dense/bias", shape=(300,), dtype="bfloat16"),
    ParameterSpec(name="other/kernel", shape=(300, 500), dtype="float32"),
)
KEEP = 2


def killer(point: str, nth: int) -> At:
    """Kills this process when a point is passed for the n-th time."""
    left = [nth]

    def at(passed: str) -> None:
        left[0] -= passed == point
        if passed == point and left[0] == 0:
            os.kill(os.getpid(), signal.SIGKILL)

    return at


def save_part(path: Path, name: str, step: int, shard: int, at: At) -> Part:
    pieces = pieces_of(SPECS, state(SPECS, step), shard, 2)
    return write_part(path / name, part_name(shard, 2), pieces, {"step": str(step)}, at)


def shard(path: Path, asked: TextIO, answers: TextIO, at: At, start_timer: Callable[[], None]) -> None:
    """Writes the parts of shard 1, until the lead is gone."""
    for line in asked:
        name, step = line.split()
        start_timer()
        part = save_part(path, name, int(step), 1, at)
        print(json.dumps([part.file, part.bytes, part.sha256]), file=answers, flush=True)


def lead(path: Path, steps: int, ask: TextIO, answers: TextIO, at: At, start_timer: Callable[[], None]) -> None:
    """Saves so many steps after the newest one."""
    folder = CheckpointFolder(path, at)
    folder.take(RUN)
    newest = folder.newest(lambda text: sys.exit(f"not whole: {text}"))
    first = newest.step + 1 if newest else 1
    for step in range(first, first + steps):
        name = saving_name(step, folder.mark)
        print(name, step, file=ask, flush=True)
        start_timer()
        own = save_part(path, name, step, 0, at)
        answer = answers.readline()
        if not answer:
            sys.exit("the other shard is gone")
        folder.commit(name, manifest(step, parts=(own, Part(*json.loads(answer))), specs=SPECS))
        print(step, flush=True)
        folder.prune(KEEP, step)
    folder.release()


def main() -> None:
    directory, steps, who, point, nth = sys.argv[1:]
    asked, ask, answered, answer = *os.pipe(), *os.pipe()
    is_lead = os.fork() != 0
    at: At = killer(point, int(nth)) if is_lead == (who == "lead") else lambda point: None
    alarms = iter([int(nth) / 1e6] if point == "timer" and is_lead == (who == "lead") else [])

    def start_timer() -> None:
        # Nobody handles this signal, so it ends the process at any instruction, as SIGKILL does.
        if seconds := next(alarms, 0.0):
            signal.setitimer(signal.ITIMER_REAL, seconds)

    for unused in (asked, answer) if is_lead else (ask, answered):
        os.close(unused)
    setup_logging("saver")
    if is_lead:
        lead(Path(directory), int(steps), os.fdopen(ask, "w"), os.fdopen(answered), at, start_timer)
    else:
        shard(Path(directory), os.fdopen(asked), os.fdopen(answer, "w"), at, start_timer)


if __name__ == "__main__":
    main()
