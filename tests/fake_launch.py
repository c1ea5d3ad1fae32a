"""A launch of small scripts in the place of shards and workers, and what was seen of it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from grpc_ps.client.launch import LaunchEvent, LaunchPlan, LaunchResult, Restart, launch
from grpc_ps.client.processes import Child, Exited, Line

FLAGS = """
import argparse, signal, socket, sys
parser = argparse.ArgumentParser()
for name in ("shard", "shards", "port", "workers", "index"):
    parser.add_argument("--" + name, type=int)
for name in ("lead", "ps"):
    parser.add_argument("--" + name)
parser.add_argument("--json", action="store_true")
flags = parser.parse_args()
"""
# Serves until as many workers as it is told have come and gone.
SHARD = (
    FLAGS
    + """
server = socket.create_server(("127.0.0.1", flags.port))
print("some line", flags.lead)
print(f"READY shard={flags.shard} address=127.0.0.1:{server.getsockname()[1]}", flush=True)
for peer in [server.accept()[0] for _ in range(flags.workers)]:
    peer.recv(1)
"""
)
JOINED = (
    FLAGS
    + """
import json
peers = []
for address in flags.ps.split(","):
    host, port = address.split(":")
    peers.append(socket.create_connection((host, int(port))))
print("joined", file=sys.stderr, flush=True)
"""
)
WORKER = (
    JOINED
    + """
accuracy = 0.5 if flags.index else None
record = {"worker": flags.index, "global_step": 100 + flags.index, "accuracy": accuracy}
print(json.dumps({**record, "metrics": {"accuracy": accuracy, "mse": 0.25} if flags.index else {}}))
"""
)


def make_plan(
    folder: Path, *, shard: str = SHARD, worker: str = WORKER, shards: int = 1, workers: int = 1, **more: Any
) -> LaunchPlan:
    """A plan for those scripts; every wait is long, but for that of a failed job's processes for each other."""
    times = {"ready_timeout": 30.0, "drain_timeout": 30.0, "settle": 0.1, "grace": 30.0}
    return LaunchPlan(
        shards=shards,
        workers=workers,
        shard_command=[sys.executable, "-c", shard, "--workers", str(workers)],
        worker_command=[sys.executable, "-c", worker],
        log_dir=folder,
        **{**times, **more},
    )


class Seen:
    """Keeps what a launcher shows, and acts on a line.

    Attributes:
        events: all of them, in order.
        addresses: the shards', once all run.
    """

    def __init__(self, text: str = "", act: Callable[[Child], object] | None = None) -> None:
        self.events: list[LaunchEvent] = []
        self.addresses: tuple[str, ...] = ()
        self._text, self._act = text, act

    def observe(self, event: LaunchEvent) -> None:
        """Takes an event."""
        self.events.append(event)
        if self._act and isinstance(event, Line) and event.text == self._text:
            self._act(event.child)

    def started(self, addresses: tuple[str, ...]) -> None:
        """Takes the addresses."""
        self.addresses = addresses

    def lines(self, name: str) -> list[str]:
        """What a process has written, in all its lives."""
        return [event.text for event in self.events if isinstance(event, Line) and event.child.name == name]

    def codes(self) -> dict[str, int | None]:
        """The last exit code of each process."""
        return {event.child.name: event.child.code for event in self.events if isinstance(event, Exited)}

    def lives(self, name: str) -> list[int]:
        """The process ids of a process, one a life that has ended."""
        return [event.child.pid for event in self.events if isinstance(event, Exited) and event.child.name == name]

    def restarts(self) -> list[str]:
        """What was said of restarts."""
        return [str(event) for event in self.events if isinstance(event, Restart)]


class Acting(Seen):
    """Does something once, when what it has seen is enough for it."""

    def __init__(self, enough: Callable[[], object], do: Callable[[], object]) -> None:
        super().__init__()
        self._enough, self._do, self._done = enough, do, False

    def observe(self, event: LaunchEvent) -> None:
        super().observe(event)
        if not self._done and self._enough():
            self._done = True
            self._do()


def run(plan: LaunchPlan, seen: Seen | None = None) -> tuple[LaunchResult, Seen]:
    """Launches, and returns how that ended and what was seen."""
    seen = seen or Seen()
    return launch(plan, observe=seen.observe, started=seen.started), seen
