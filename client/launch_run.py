"""One run of a launch: which processes there are, what they said, and what their ends mean."""

from __future__ import annotations

import json
import os
import re
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from grpc_ps.client.cluster_file import ClusterFile, Process
from grpc_ps.client.launch_place import Place
from grpc_ps.client.launch_plan import LaunchPlan
from grpc_ps.client.processes import Child, Event, Exited, Line, ProcessGroup, Signalled
from grpc_ps.client.restarts import Restart, Restarts, is_gone, is_worth_it

LaunchEvent = Event | Restart

_READY = re.compile(r"READY shard=(\d+) address=(\S+)")
# Before that, with --metrics.
_METRICS = re.compile(r"METRICS shard=\d+ url=(\S+)")
# The lead says that a checkpoint is committed, or that it goes on from one.
_SAVED = re.compile(r" psserver 0 (?:checkpoint|(resumed) checkpoint=.*) global_step=(\d+)\b")
_NO_CHECKPOINTS = "its part of the model is gone with it; with --checkpoint-dir it would be started again"


class Ended(Exception):
    """The cluster has ended or cannot go on; carries what the result says."""

    def __init__(self, exit_code: int, reason: str, at_fault: Sequence[Child] = ()) -> None:
        super().__init__(reason)
        self.exit_code = exit_code
        self.reason = reason
        self.at_fault = at_fault


class Run:
    """One run of a plan: its shards, its workers, and what they said. Of the main thread alone."""

    def __init__(self, plan: LaunchPlan, observe: Callable[[LaunchEvent], None]) -> None:
        self.group = ProcessGroup(plan.log_dir, self._observe, grace=plan.grace)
        self._plan = plan
        self._user = observe
        self._shards: list[Place] = []
        self._workers: list[Place] = []
        self._restarts = Restarts(plan.max_restarts)
        self._json: dict[Child, Mapping[str, Any]] = {}
        self._drain: float | None = None
        # Steps of the newest checkpoint, and of that which the job went on from first.
        self._saved: int | None = None
        self.resumed: int | None = None
        self._listed = False

    @property
    def restarts(self) -> int:
        """How many processes were started again."""
        return self._restarts.used

    def start(self) -> tuple[str, ...]:
        """Starts all processes, shards first, and returns the shards' addresses."""
        deadline = time.monotonic() + self._plan.ready_timeout
        self._shards.append(self._start("ps 0", self._shard_command(0)))
        self._await_ready(deadline)
        for shard in range(1, self._plan.shards):
            self._shards.append(self._start(f"ps {shard}", self._shard_command(shard)))
        self._await_ready(deadline)
        # From here on the cluster file says what there is, and in the end that it is over.
        self._listed = True
        addresses = tuple(shard.address for shard in self._shards)
        for index in range(self._plan.workers):
            command = [*self._plan.worker_command, "--ps", ",".join(addresses), "--index", str(index), "--json"]
            self._workers.append(self._start(f"worker {index}", command))
        self._cluster_file().write(self._plan.log_dir)
        return addresses

    def watch(self) -> None:
        """Waits until all processes have ended well. Training may take as long as it takes; its end may not.

        Workers that are still there some time after the shards have ended well are left to `ProcessGroup.end`: what
        they may be waiting for will not come.
        """
        while not all(place.over for place in self._places()):
            if self._next(self._drain_deadline()) is None:
                if _all_over(self._shards):
                    return
                raise _late(self.group.running(), "did not end after the others had", self._plan.drain_timeout)

    def settle(self, first: Ended) -> Ended:
        """Lets the others end by themselves where they will, and returns what the run ended with.

        That is the cause, as far as it can be told: who merely lost a peer may be seen before that peer is.
        """
        failed = [child for child in first.at_fault if child.code]
        if not any(self._ends_all(child) for child in failed):
            return first
        deadline = time.monotonic() + self._plan.settle
        while self.group.running():
            event = self.group.wait(deadline)
            if event is None or isinstance(event, Signalled):
                break
            if isinstance(event, Exited) and event.child.code:
                failed.append(event.child)
        if self._is_good() and all(child.code == 4 for child in failed):
            # Nobody but workers that lost the shards, which had ended well.
            return Ended(0, "")
        cause = next((child for child in failed if child.code != 4), failed[0])
        return first if cause is failed[0] else _failure(cause, self._advice(cause))

    def close(self, exit_code: int) -> None:
        """Writes into the cluster file that the cluster has ended."""
        if self._listed:
            self._cluster_file().ended(exit_code).write(self._plan.log_dir)

    def summaries(self) -> tuple[Mapping[str, Any], ...]:
        """Returns the workers' own summaries."""
        return tuple(self._json[worker.child] for worker in self._workers if worker.child in self._json)

    def _places(self) -> list[Place]:
        return [*self._shards, *self._workers]

    def _place(self, child: Child) -> Place | None:
        return next((place for place in self._places() if place.child is child), None)

    def _start(self, name: str, command: Sequence[str]) -> Place:
        whole = self._plan.elsewhere.get(name) or [*command, *self._plan.own_flags.get(name, ())]
        return Place(name, whole, self.group.start(name, whole, remote=name in self._plan.elsewhere))

    def _shard_command(self, shard: int) -> list[str]:
        lead = ("--lead", self._shards[0].address) if shard else ()
        flags = ("--shard", str(shard), "--shards", str(self._plan.shards), "--port", "0", *lead)
        return [*self._plan.shard_command, *flags]

    def _await_ready(self, deadline: float) -> None:
        """Waits until every shard started so far has said its address."""
        while waiting := [shard.child for shard in self._shards if not shard.address]:
            event = self._next(deadline)
            if event is None:
                raise _late(waiting, "was not ready", self._plan.ready_timeout)
            if isinstance(event, Exited) and not event.child.code:
                raise Ended(4, f"{event.child.name} ended before it was ready", [event.child])

    def _next(self, deadline: float | None) -> Event | None:
        """Returns the next event, or None at the deadline; the events that end the run are raised."""
        while True:
            self._start_again()
            due = [place.due for place in self._places() if place.due is not None]
            event = self.group.wait(min([*due, *([] if deadline is None else [deadline])], default=None))
            if event is not None:
                break
            if deadline is not None and time.monotonic() >= deadline:
                return None
        if isinstance(event, Signalled):
            raise Ended(128 + event.number, f"ended by {signal.Signals(event.number).name}")
        if isinstance(event, Exited):
            self._judge(event.child)
        return event

    def _judge(self, child: Child) -> None:
        """Decides what the end of a process means: nothing, that it is started again, or the end of all."""
        place, code = self._place(child), child.code or 0
        if place is None or not code:
            return
        if self._is_good():
            if is_gone(code):
                return
            raise _failure(child)
        wanted = self._plan.max_restarts > 0 and is_worth_it(code)
        if wanted and place.address and not self._plan.checkpoints:
            raise _failure(child, _NO_CHECKPOINTS)
        restart = self._restarts.next(place.name, code)
        if restart is None:
            raise _failure(child, f"all {self.restarts} restarts are used" if wanted else "", self._advice(child))
        place.due = time.monotonic() + restart.pause
        self._drain = None
        self._user(restart)

    def _advice(self, child: Child) -> str:
        """What to do when a process has ended that may end better another time; empty where nothing was saved."""
        if self._saved is None or self._plan.checkpoints is None or not is_worth_it(child.code or 0):
            return ""
        again = "" if self._plan.max_restarts else "; --max-restarts N does so by itself"
        where = f"in {self._plan.checkpoints}, at step {self._saved}"
        return f"the job is saved {where}: the same command goes on from there{again}"

    def _is_good(self) -> bool:
        """Whether the job is over and good: the lead lets a shard end with 0 only when that is so."""
        return any(shard.child.code == 0 for shard in self._shards)

    def _start_again(self) -> None:
        """Starts what is due, unless the job is over by now."""
        now, over = time.monotonic(), self._is_good()
        due = [place for place in self._places() if place.due is not None and (over or place.due <= now)]
        for place in due:
            place.due = None
            if not over:
                command = place.command_again(saved=self._saved is not None)
                remote = place.name in self._plan.elsewhere
                place.child = self.group.start(place.name, command, again=True, remote=remote)
        if due and self._listed:
            self._cluster_file().write(self._plan.log_dir)

    def _drain_deadline(self) -> float | None:
        """Returns until when the end may take, None before it has begun; the last workers get less than shards."""
        if _all_over(self._shards):
            seconds = self._plan.grace
        elif self._is_good() or _all_over(self._workers):
            seconds = self._plan.drain_timeout
        else:
            self._drain = None
            return None
        until = time.monotonic() + seconds
        self._drain = until if self._drain is None else min(self._drain, until)
        return self._drain

    def _ends_all(self, child: Child) -> bool:
        """Whether the whole job ends because of that process's end, so that the others end by themselves."""
        place = self._place(child)
        return place is not None and (place.is_shard or child.code in (4, 5, 6))

    def _observe(self, event: Event) -> None:
        """Takes what is meant for the launcher, a shard's address or a worker's summary, and passes all on."""
        if isinstance(event, Line) and not event.stdout and (saved := _SAVED.search(event.text)):
            self._saved = int(saved[2])
            if saved[1] and self.resumed is None:
                self.resumed = self._saved
        place = self._place(event.child) if isinstance(event, Line) and event.stdout else None
        if isinstance(event, Line) and place is not None:
            ready = _READY.fullmatch(event.text) if place.is_shard else None
            metrics = _METRICS.fullmatch(event.text) if place.is_shard else None
            if ready:
                # One that listens on all addresses of its host does not say by which of them it is known.
                place.address = self._plan.addresses[int(ready[1])] if self._plan.addresses else ready[2]
            elif metrics:
                self._found(place, metrics[1])
            elif not place.is_shard and (summary := _parse(event.text)):
                self._json[event.child] = summary
        self._user(event)

    def _found(self, place: Place, metrics: str) -> None:
        """A shard that was started again has its figures elsewhere."""
        place.metrics = metrics
        if self._listed:
            self._cluster_file().write(self._plan.log_dir)

    def _cluster_file(self) -> ClusterFile:
        shards = [
            Process(name=shard.name, pid=shard.child.pid, address=shard.address, metrics=shard.metrics)
            for shard in self._shards
        ]
        workers = [Process(name=worker.name, pid=worker.child.pid) for worker in self._workers]
        return ClusterFile(launcher=os.getpid(), shards=tuple(shards), workers=tuple(workers))


def _all_over(places: Sequence[Place]) -> bool:
    return all(place.over for place in places)


def _failure(child: Child, *more: str) -> Ended:
    reason = f"{child.name} failed with exit code {child.code}"
    return Ended(child.code or 4, "; ".join(filter(None, (reason, *more))), [child])


def _late(children: Sequence[Child], what: str, seconds: float) -> Ended:
    return Ended(4, f"{', '.join(child.name for child in children)} {what} within {seconds:g} s", children)


def _parse(text: str) -> Mapping[str, Any] | None:
    try:
        record = json.loads(text) if text.startswith("{") else None
    except ValueError:
        return None
    return record if isinstance(record, dict) else None
