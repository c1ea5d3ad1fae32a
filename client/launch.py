"""Starts a whole cluster on this machine and watches over it until it ends: what `psctl launch` does."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from grpc_ps.client.cluster_file import ClusterFile, Process
from grpc_ps.client.processes import GRACE_SECONDS, Child, Event, Exited, Line, ProcessGroup, Signalled, last_lines

_READY = re.compile(r"READY shard=(\d+) address=(\S+)")


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """What to start, and how long to wait for what.

    `shard_command` and `worker_command` are complete but for what only the launcher knows: a shard's number, the
    lead's address, the list of shards, a worker's index.
    """

    shards: int
    workers: int
    shard_command: Sequence[str]
    worker_command: Sequence[str]
    # An existing folder for logs and cluster file.
    log_dir: Path
    # Seconds for all shards to say READY.
    ready_timeout: float = 120.0
    # Seconds for the last processes to end once all shards or all workers have.
    drain_timeout: float = 60.0
    # Seconds between SIGTERM and SIGKILL.
    grace: float = GRACE_SECONDS


@dataclass(frozen=True, kw_only=True)
class LaunchResult:
    """How a cluster ended: exit code 0, or the code to exit with and why."""

    exit_code: int
    reason: str = ""
    # Last lines of the process at fault, each with that process's name.
    last_lines: tuple[str, ...] = ()
    # What the workers that finished say of themselves, in order of their indices.
    workers: tuple[Mapping[str, Any], ...] = ()
    wall_seconds: float = 0.0

    @property
    def ended_by(self) -> str:
        """What ended the job before its steps or epochs were done, as its workers were told; empty if nothing did."""
        return next((str(worker["reason"]) for worker in self.workers if worker.get("reason")), "")

    def summary(self) -> dict[str, Any]:
        """Returns the run in one record for programs: the job's own figures and the workers'."""
        accuracies = [worker["accuracy"] for worker in self.workers if worker.get("accuracy") is not None]
        steps = [worker["global_step"] for worker in self.workers if "global_step" in worker]
        return {
            "exit_code": self.exit_code,
            "reason": self.reason,
            "ended_by": self.ended_by,
            "global_step": max(steps, default=None),
            "accuracy": accuracies[0] if accuracies else None,
            "metrics": next((worker["metrics"] for worker in self.workers if worker.get("metrics")), {}),
            "wall_seconds": round(self.wall_seconds, 3),
            "last_lines": list(self.last_lines),
            "workers": list(self.workers),
        }


class _Ended(Exception):
    """The cluster cannot go on; carries what the result says."""

    def __init__(self, exit_code: int, reason: str, at_fault: Sequence[Child] = ()) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
        self.reason = reason
        self.at_fault = at_fault


def launch(
    plan: LaunchPlan, *, observe: Callable[[Event], None], started: Callable[[tuple[str, ...]], None]
) -> LaunchResult:
    """Starts shards and workers, and returns when all have ended; nothing is left running then.

    The first process that fails ends all the others, and its exit code is the result's. SIGINT, SIGTERM and SIGHUP to
    this process end the cluster: exit code 128 + their number; a second one does not wait for the grace time.
    Runs in the main thread. `observe` gets each event, `started` the shards' addresses once all processes run.
    """
    begin = time.monotonic()
    run = _Run(plan, observe)
    with run.group.signals(signal.SIGINT, signal.SIGTERM, signal.SIGHUP), run.group:
        try:
            started(run.start())
            run.watch()
            ended = _Ended(0, "")
        except _Ended as error:
            ended = error
        left = run.group.end()
        run.close(ended.exit_code)
    stuck = [f"{child.name} (pid {child.pid}) does not end even when killed" for child in left]
    return LaunchResult(
        exit_code=ended.exit_code,
        reason="; ".join(filter(None, [ended.reason, *stuck])),
        last_lines=tuple(last_lines(ended.at_fault)),
        workers=run.summaries(),
        wall_seconds=time.monotonic() - begin,
    )


class _Run:
    """One run of a plan: its shards, its workers, and what they said."""

    def __init__(self, plan: LaunchPlan, observe: Callable[[Event], None]) -> None:
        self.group = ProcessGroup(plan.log_dir, self._observe, grace=plan.grace)
        self._plan = plan
        self._user = observe
        self._shards: list[Child] = []
        self._workers: list[Child] = []
        self._addresses: dict[int, str] = {}
        self._json: dict[Child, Mapping[str, Any]] = {}

    def start(self) -> tuple[str, ...]:
        """Starts all processes, shards first, and returns the shards' addresses."""
        deadline = time.monotonic() + self._plan.ready_timeout
        self._start_shard(0)
        self._await_ready(deadline)
        for shard in range(1, self._plan.shards):
            self._start_shard(shard, "--lead", self._addresses[0])
        self._await_ready(deadline)
        addresses = tuple(self._addresses[shard] for shard in range(self._plan.shards))
        for index in range(self._plan.workers):
            flags = ("--ps", ",".join(addresses), "--index", str(index), "--json")
            self._workers.append(self.group.start(f"worker {index}", [*self._plan.worker_command, *flags]))
        self._cluster_file().write(self._plan.log_dir)
        return addresses

    def watch(self) -> None:
        """Waits until all processes have ended well. Training may take as long as it takes; its end may not."""
        deadline = None
        while self.group.running():
            if deadline is None and not (_running(self._workers) and _running(self._shards)):
                deadline = time.monotonic() + self._plan.drain_timeout
            if self._next(deadline) is None:
                raise _late(self.group.running(), "did not end after the others had", self._plan.drain_timeout)

    def close(self, exit_code: int) -> None:
        """Writes into the cluster file that the cluster has ended."""
        if self._workers:
            self._cluster_file().ended(exit_code).write(self._plan.log_dir)

    def summaries(self) -> tuple[Mapping[str, Any], ...]:
        """Returns the workers' own summaries."""
        return tuple(self._json[worker] for worker in self._workers if worker in self._json)

    def _start_shard(self, shard: int, *lead: str) -> None:
        flags = ("--shard", str(shard), "--shards", str(self._plan.shards), "--port", "0", *lead)
        self._shards.append(self.group.start(f"ps {shard}", [*self._plan.shard_command, *flags]))

    def _await_ready(self, deadline: float) -> None:
        """Waits until every shard started so far has said its address."""
        while waiting := [child for shard, child in enumerate(self._shards) if shard not in self._addresses]:
            event = self._next(deadline)
            if event is None:
                raise _late(waiting, "was not ready", self._plan.ready_timeout)
            if isinstance(event, Exited):
                raise _Ended(4, f"{event.child.name} ended before it was ready", [event.child])

    def _next(self, deadline: float | None) -> Event | None:
        """Returns the next event, or None at the deadline; the events that end the run are raised."""
        event = self.group.wait(deadline)
        if isinstance(event, Signalled):
            raise _Ended(128 + event.number, f"ended by {signal.Signals(event.number).name}")
        if isinstance(event, Exited) and event.child.code:
            child = event.child
            raise _Ended(event.child.code, f"{child.name} failed with exit code {child.code}", [child])
        return event

    def _observe(self, event: Event) -> None:
        """Takes what is meant for the launcher, a shard's address or a worker's summary, and passes all on."""
        if isinstance(event, Line) and event.stdout:
            ready = _READY.fullmatch(event.text)
            if ready and event.child in self._shards:
                self._addresses[self._shards.index(event.child)] = ready[2]
            elif event.child in self._workers and (summary := _parse(event.text)):
                self._json[event.child] = summary
        self._user(event)

    def _cluster_file(self) -> ClusterFile:
        shards = [
            Process(name=shard.name, pid=shard.pid, address=self._addresses[number])
            for number, shard in enumerate(self._shards)
        ]
        workers = [Process(name=worker.name, pid=worker.pid) for worker in self._workers]
        return ClusterFile(launcher=os.getpid(), shards=tuple(shards), workers=tuple(workers))


def _running(children: Sequence[Child]) -> bool:
    return any(child.code is None for child in children)


def _late(children: Sequence[Child], what: str, seconds: float) -> _Ended:
    return _Ended(4, f"{', '.join(child.name for child in children)} {what} within {seconds:g} s", children)


def _parse(text: str) -> Mapping[str, Any] | None:
    try:
        record = json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
