"""What `psctl launch` shows while a cluster runs: progress bars on a terminal, the processes' own lines elsewhere."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Sequence
from contextlib import AbstractContextManager, suppress
from types import TracebackType
from typing import Protocol, TextIO

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from grpc_ps.client.client import ClusterStatus, PSClient
from grpc_ps.client.launch import LaunchEvent, Restart
from grpc_ps.client.processes import TAIL_LINES, Exited, Line
from grpc_ps.client.shared.errors import PsError

# Seconds between two looks at the cluster.
_INTERVAL = 0.5


class View(Protocol):
    """Gets what happens, in the main thread."""

    def observe(self, event: LaunchEvent) -> None:
        """Takes one event of a process."""

    def started(self, addresses: tuple[str, ...]) -> None:
        """Takes the shards' addresses once all processes have been started."""

    def shows(self, lines: Sequence[str]) -> bool:
        """Whether the last one of those, each with its process's name, is among the newest that were shown."""


def make_view(out: TextIO, *, bars: bool) -> AbstractContextManager[View]:
    """Returns the view for an output, to be entered before the cluster starts."""
    return _Bars(out) if bars else _Lines(out)


class _Lines:
    """Every line of every process, with the process's name in front."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._newest: deque[str] = deque(maxlen=TAIL_LINES)

    def __enter__(self) -> View:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        pass

    def observe(self, event: LaunchEvent) -> None:
        # A worker's summary on stdout is for the launcher; it gives the whole cluster's at the end.
        if isinstance(event, Line) and not _is_summary(event):
            self._say(f"[{event.child.name}] {event.text}")
        elif isinstance(event, Exited):
            self._say(f"[{event.child.name}] ended with exit code {event.child.code}")
        elif isinstance(event, Restart):
            self._say(str(event))

    def started(self, addresses: tuple[str, ...]) -> None:
        self._say(f"shards: {','.join(addresses)}; workers are starting, each imports TensorFlow (some seconds)")

    def shows(self, lines: Sequence[str]) -> bool:
        return bool(lines) and lines[-1] in self._newest

    def _say(self, text: str) -> None:
        self._newest.append(text)
        # Whoever read the output may be gone (`| head`); the cluster runs on, and its logs are kept.
        with suppress(BrokenPipeError):
            print(text, file=self._out, flush=True)


def _is_summary(line: Line) -> bool:
    """Whether a worker says its last figures."""
    return line.stdout and line.text.startswith("{")


def step_bars(out: TextIO) -> Progress:
    """Bars for counts of steps, each with a field `note`."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[note]}"),
        TimeElapsedColumn(),
        console=Console(file=out),
    )


class _Bars:
    """A bar for the global step and one for each worker's local step, from the lead's status.

    A thread of its own asks for the status, so that a slow answer does not delay Ctrl-C.
    """

    def __init__(self, out: TextIO) -> None:
        self._progress = step_bars(out)
        self._tasks: dict[str, TaskID] = {}
        # The last one that was said to have begun from a checkpoint.
        self._generation = 0
        # Steps that workers said of themselves in the end, which the lead may not have told before.
        self._last: dict[str, int] = {}
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> View:
        self._progress.start()
        self._set("cluster", 0, None, "starting shards")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join(5 * _INTERVAL)
        for name, completed in self._last.items():
            if name in self._tasks:
                self._progress.update(self._tasks[name], completed=completed)
        self._progress.stop()

    def observe(self, event: LaunchEvent) -> None:
        if isinstance(event, Line) and ": evaluation at " in event.text:
            self._print(event.text)
        elif isinstance(event, Line) and _is_summary(event):
            self._note_last(event)
        elif isinstance(event, Exited) and event.child.code:
            self._print(f"[{event.child.name}] ended with exit code {event.child.code}")
        elif isinstance(event, Restart):
            self._print(str(event))

    def _note_last(self, summary: Line) -> None:
        with suppress(ValueError, KeyError, TypeError):  # It is what the process says, whatever process that is.
            record = json.loads(summary.text)
            self._last[summary.child.name] = int(record["local_steps"])
            self._last["cluster"] = max(self._last.get("cluster", 0), int(record["global_step"]))

    def _print(self, text: str) -> None:
        self._progress.console.print(text, markup=False, highlight=False)

    def started(self, addresses: tuple[str, ...]) -> None:
        self._set("cluster", 0, None, "starting workers: each imports TensorFlow")
        self._thread = threading.Thread(target=self._follow, args=(addresses,), name="status", daemon=True)
        self._thread.start()

    def shows(self, lines: Sequence[str]) -> bool:
        return False

    def _follow(self, addresses: tuple[str, ...]) -> None:
        with PSClient(addresses) as client:
            while not self._ended.is_set():
                # Without an answer the bars stand still; the processes themselves say what is wrong. A lead that was
                # started again answers again.
                with suppress(PsError):
                    for now in client.watch(_INTERVAL, stop=self._ended.is_set):
                        self._show(now)
                self._ended.wait(_INTERVAL)

    def _show(self, now: ClusterStatus) -> None:
        saved = now.checkpoint
        if saved is not None and saved.restored_step is not None and now.generation != self._generation:
            self._generation = now.generation
            self._print(f"resumed from step {saved.restored_step}")
        steps = int(now.settings.get("steps", 0)) or None
        starting = "starting workers: each imports TensorFlow" if now.phase == "empty" else now.phase
        self._set("cluster", now.global_step, steps, now.waiting_for or starting)
        # How many of an asynchronous job's steps a worker will compute, nobody knows.
        share = steps if now.settings.get("mode") == "sync" else None
        for worker in now.workers:
            note = "" if worker.loss is None else f"loss {worker.loss:.4g}"
            note += f" late {worker.late}" if worker.late else ""
            self._set(f"worker {worker.worker}", worker.local_step, share, note)

    def _set(self, name: str, completed: int, total: int | None, note: str) -> None:
        """Shows a bar; its total is None as long as it is not known."""
        label = "global step" if name == "cluster" else f"{name} local step"
        if name not in self._tasks:
            self._tasks[name] = self._progress.add_task(label, total=total, note=note)
        self._progress.update(self._tasks[name], completed=completed, total=total, note=note)
