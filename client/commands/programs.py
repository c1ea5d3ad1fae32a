"""The commands that psctl starts: it imports neither TensorFlow nor models, so a worker does what needs them."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from grpc_ps.client.shared import tf_config
from grpc_ps.client.shared.errors import JobFailed, UsageError

OUR_MODELS = ("cifar10", "embedding", "linear", "mnist")
"""Models that a worker knows by the name that a cluster's status shows (tests/unit/test_names.py compares them)."""

_ERROR = "worker: error: "


def program(name: str) -> str:
    """Returns the path of a command that was installed together with this one.

    Raises:
        UsageError: there is none.
    """
    beside = [str(Path(program).parent) for program in (sys.argv[0], sys.executable)]
    found = shutil.which(name, path=os.pathsep.join([*beside, os.environ.get("PATH", "")]))
    if found is None:
        raise UsageError(f"the command {name} is not installed beside {sys.argv[0]}")
    return found


def run_worker(
    arguments: Sequence[str], *, seconds: float, what: str, told: Callable[[str], None] = lambda line: None
) -> str:
    """Runs a worker's subcommand to its end and returns its stdout. `what` names it for people.

    Where it ends well `told` gets what it has warned of, line by line.

    Raises:
        JobFailed: it failed, with its own message and exit code, or did not end in time.
    """
    try:
        done = subprocess.run(
            [program("worker"), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env=_environment(),
        )
    except subprocess.TimeoutExpired:
        raise JobFailed(f"{what} has not ended within {seconds:g} s") from None
    if done.returncode:
        if done.returncode == 1:
            # A bug: its traceback says more than the last line.
            sys.stderr.write(done.stderr)
        raise _failed(done.returncode, done.stderr.strip().splitlines(), what)
    for line in done.stderr.splitlines():
        told(line)
    return done.stdout


def _environment() -> dict[str, str]:
    """The environment of a started worker: its flags say all that is meant, TF_CONFIG may be of another cluster."""
    return {name: value for name, value in os.environ.items() if name != tf_config.NAME}


def watch_worker(arguments: Sequence[str], told: Callable[[str], None]) -> None:
    """Runs a worker's subcommand to its end, however long that takes, and tells each line of its stderr at once.

    Raises:
        JobFailed: as `run_worker`.
    """
    lines = []
    command = [program("worker"), *arguments]
    nothing, read, own = subprocess.DEVNULL, subprocess.PIPE, _environment()
    with subprocess.Popen(command, stdout=nothing, stderr=read, text=True, env=own) as process:
        try:
            for line in process.stderr or ():
                lines.append(line.rstrip("\n"))
                if not line.startswith(_ERROR):
                    told(lines[-1])
            process.wait()
        finally:
            process.kill()
    if process.returncode:
        raise _failed(process.returncode, lines, f"worker {arguments[0]}")


def _failed(returncode: int, lines: Sequence[str], what: str) -> JobFailed:
    code = returncode if returncode > 0 else 128 - returncode
    text = lines[-1].removeprefix(_ERROR) if lines else f"{what} ended with exit code {code}"
    return JobFailed(text, exit_code=code)


def worker_record(arguments: Sequence[str], *, seconds: float, what: str) -> Mapping[str, Any]:
    """Runs a worker's subcommand that prints one JSON object on stdout, and returns that.

    Raises:
        JobFailed: it failed, or printed no such thing.
    """
    lines = run_worker([*arguments, "--json"], seconds=seconds, what=what).splitlines()
    try:
        record = json.loads(lines[-1])
    except (IndexError, ValueError):
        record = None
    if not isinstance(record, dict):
        raise JobFailed(f"{what} printed no JSON object; are psctl and worker of the same version?")
    return record
