"""One of our commands, called again and again: `python called_often.py NAME`, with a JSON list of arguments a line.

Imports the command once, and then forks a child for each call, which runs the command's own `main`. Answers each line
with a JSON list: the exit code, and what was written to stderr.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from types import TracebackType

from grpc_ps.client.shared.process import prepare_process

# Where `main` is, and what it imports in the end.
MODULES = {
    "psctl": ("grpc_ps.client.commands", "grpc_ps.client.commands.group"),
    "psserver": ("grpc_ps.psserver.cli", "grpc_ps.psserver.command"),
    "worker": ("grpc_ps.worker.cli", "grpc_ps.worker.command", "grpc_ps.worker.loading"),
}


class CalledOften:
    """The process that is asked; what it imports comes from `path` first."""

    def __init__(self, name: str, path: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, __file__, name],
            env={**os.environ, "PYTHONPATH": str(path)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def __call__(self, *arguments: object) -> tuple[int, str]:
        """Runs the command to its end; its exit code, and what it wrote to stderr."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps([str(argument) for argument in arguments]), file=self._process.stdin, flush=True)
        code, said = json.loads(self._process.stdout.readline())
        return code, said

    def __enter__(self) -> CalledOften:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.communicate(timeout=20)


def call(name: str, module: str, arguments: list[str]) -> tuple[int, str]:
    """Forks; the child becomes the command and does not come back."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.dup2(os.open(os.devnull, os.O_RDWR), 0)
        os.dup2(0, 1)
        os.dup2(writing, 2)
        for descriptor in (reading, writing):
            os.close(descriptor)
        sys.argv = [name, *arguments]
        import_module(module).main()
    os.close(writing)
    with os.fdopen(reading) as stderr:
        said = stderr.read()
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), said


def main() -> None:
    name = sys.argv[1]
    home, *rest = MODULES[name]
    prepare_process()
    for module in (home, *rest):
        import_module(module)
    for line in sys.stdin:
        print(json.dumps(call(name, home, json.loads(line))), flush=True)


if __name__ == "__main__":
    main()
