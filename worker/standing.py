"""A worker that stands by: it takes one job after the other from the lead, each in a process of its own."""

from __future__ import annotations

import logging
import os
import queue
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

import click

from grpc_ps.client import PsError, Security, parse_addresses
from grpc_ps.client.commands.programs import program
from grpc_ps.client.jobs import Assignment, Carried, JobQueue, JobRequest
from grpc_ps.client.processes import Child, Event, Exited, Line
from grpc_ps.client.shared.download_flags import DOWNLOAD_FLAGS, check_download
from grpc_ps.client.shared.errors import Ending, JobFailed, PeerLost, PeerUnreachable
from grpc_ps.client.shared.flags import flag_of, typed
from grpc_ps.client.shared.job_flags import stated_flags
from grpc_ps.client.shared.logs import event
from grpc_ps.client.shared.security_flags import SECURITY_FLAGS, security_from_flags
from grpc_ps.client.shared.tf_config import worker_flags
from grpc_ps.worker.flags import check_data

_LOGGER = logging.getLogger("grpc_ps.worker")
# Seconds for which the lead may hold a call, between two tries to reach it, and between two words to the user.
_HOLD = 1.0
_RETRY = 0.2
_SAY_MISSING, _SAY_IDLE = 5.0, 60.0
# Seconds for the process of a job to end once that is over: it evaluates the last values.
_DRAIN = 60.0
# Places of a job that does not say how many it has.
_PLACES = 64

# What a worker's last line begins with.
_ERROR = "worker: error: "

_PASSED_ON = ("ps", "connect_timeout", "grace", "device", "json", *SECURITY_FLAGS)
_OF_A_JOB = ("model_arg", "init_from", "overlap", "run", "logdir", "summary_every")


@dataclass(frozen=True, kw_only=True)
class StandingConfig:
    """What a standing worker was told to do.

    Attributes:
        own: flags that the process of every job gets.
        data, data_dir, download, threads, index: for jobs that say nothing of it, and can have it.
        connect_timeout: seconds for which the lead may be out of reach.
        grace: seconds for that process to end in after a signal.
    """

    addresses: tuple[str, ...]
    own: tuple[str, ...]
    data: str | None = None
    data_dir: Path | None = None
    download: tuple[str, ...] = ()
    threads: int | None = None
    index: int | None = None
    connect_timeout: float = 60.0
    grace: float = 5.0
    security: Security | None = None


def standing_config(flags: Mapping[str, Any]) -> StandingConfig:
    """Makes the settings of the flags of a worker without --model.

    Raises:
        click.UsageError, UsageError: a flag that is for a job alone, or a value that is wrong.
    """
    flags = worker_flags(flags)
    if flags["task"] == "evaluator":
        raise click.UsageError("Missing option '--model': an evaluator needs to know what it evaluates.")
    if flags["ps"] is None:
        raise click.UsageError("--ps: must be given: HOST:PORT,..., the lead shard first")
    for name in (*stated_flags(flags), *(name for name in _OF_A_JOB if flags[name])):
        if name != "threads":
            raise click.UsageError(f"{flag_of(name)}: needs --model; without it the jobs that are submitted say so")
    if flags["data"] is not None and flags["data_dir"] is not None:
        raise click.UsageError(f"--data {flags['data']} and --data-dir {flags['data_dir']} exclude each other")
    if flags["data_dir"] is None:
        check_data(None, flags["data"], None)
    check_download(flags)
    if flags["device"] is not None:
        from grpc_ps.worker.device import parse_device

        parse_device(flags["device"])
    own = {name: flags[name] for name in _PASSED_ON if flags[name]}
    if flags["fault"]:
        own |= {"fault": tuple(map(str, flags["fault"])), "fault_seed": flags["fault_seed"]}
    return StandingConfig(
        addresses=parse_addresses(flags["ps"]),
        own=tuple(typed(own)),
        data=flags["data"],
        data_dir=flags["data_dir"],
        download=tuple(typed({name: flags[name] for name in DOWNLOAD_FLAGS if flags[name]})),
        threads=flags["threads"],
        index=flags["index"],
        connect_timeout=flags["connect_timeout"],
        grace=flags["grace"],
        security=security_from_flags(flags),
    )


def flags_for(config: StandingConfig, job: JobRequest, run: int) -> list[str]:
    """The flags of the worker that carries a job out: the job's, and this worker's own where the job says nothing."""
    own: dict[str, Any] = {"run": f"{run:016x}"}
    download: tuple[str, ...] = ()
    if not {"data", "data_dir"} & job.options.keys() and _takes(job.model, config):
        own |= {"data": config.data, "data_dir": config.data_dir}
        download = config.download
    if "threads" not in job.stated:
        own["threads"] = config.threads
    if config.index is not None and config.index < _places(job.stated):
        own["index"] = config.index
    return [*config.own, *typed(own), *download, *job.flags()]


def _takes(model: str, config: StandingConfig) -> bool:
    """Whether that model can be trained on this worker's data; some have their own."""
    try:
        check_data(model, config.data, config.data_dir)
    except click.UsageError:
        return False
    return True


def _places(stated: Mapping[str, Any]) -> int:
    if stated.get("mode") == "sync":
        return int(stated.get("workers", 1)) + int(stated.get("backup", 0))
    return int(stated.get("max_workers", _PLACES))


class StandingWorker:
    """Asks for jobs and carries them out, until the cluster ends or a signal comes.

    `run` is for the main thread: on Linux the kernel ends a job's process together with the thread that started it.
    `interrupt` may be called by any thread.

    Args:
        command: what a job's flags are given to; the worker that is installed if None.
    """

    def __init__(self, config: StandingConfig, jobs: JobQueue, command: Sequence[str] | None = None) -> None:
        self._config = config
        self._jobs = jobs
        self._command = (program("worker"),) if command is None else command
        self._why = ""
        # SimpleQueue, because the thread that reads signals puts into it.
        self._events: queue.SimpleQueue[Event | None] = queue.SimpleQueue()
        self._ended: Carried | None = None
        self._parts = 0
        self._heard = self._said = time.monotonic()
        self._recovery = 0.0
        self._beat = _HOLD

    def interrupt(self, why: str) -> None:
        """Ends all waits: `run` raises Ending."""
        self._why = why
        self._events.put(None)

    def run(self) -> int:
        """Returns 0 when the cluster has ended well.

        Raises:
            PeerUnreachable: the lead could not be reached for the connect timeout.
            JobFailed: the cluster has ended otherwise. Ending: `interrupt` was called.
            UsageError: the cluster takes no jobs.
        """
        event(_LOGGER, "standing_by", lead=self._config.addresses[0])
        while True:
            told = self._ask(_HOLD)
            if told is not None and told.job is not None and not told.closing:
                told = self._carry_out(told, told.job)
            if self._why:
                self._leave()
                raise Ending(self._why)
            if told is not None and told.closing:
                if told.exit_code:
                    raise JobFailed(told.reason, exit_code=told.exit_code)
                event(_LOGGER, "cluster_ended", why=told.reason or "it was told to")
                return 0

    def _ask(self, hold: float, carrying: tuple[int, int] = (0, 0)) -> Assignment | None:
        """Calls the lead; None if it does not answer, which only a worker without a job gives up for."""
        try:
            told = self._jobs.wait(hold, carrying=carrying, ended=self._ended)
        except (PeerUnreachable, PeerLost, Ending) as error:
            self._missed(error, busy=carrying[0] != 0)
            return None
        self._ended, self._heard = None, time.monotonic()
        if told.closing:
            # The lead waits for that word: an answer may be lost.
            self._leave()
        self._recovery, self._beat = told.recovery, max(0.1, min(_HOLD, told.lease / 4))
        if told.job is None and not carrying[0]:
            self._say(_SAY_IDLE, "a job")
        return told

    def _leave(self) -> None:
        with suppress(PsError):
            self._jobs.leave(1.0)

    def _missed(self, error: PsError, *, busy: bool) -> None:
        patience = max(self._config.connect_timeout, self._recovery)
        address = self._config.addresses[0]
        if not busy and time.monotonic() - self._heard > patience:
            raise PeerUnreachable(f"cannot reach {address} (waited {patience:g} s; {error})") from error
        self._say(_SAY_MISSING, f"{address} to answer")
        if not busy:
            with suppress(queue.Empty):
                self._events.get(timeout=_RETRY)

    def _say(self, every: float, what: str) -> None:
        if time.monotonic() - self._said >= every:
            self._said = time.monotonic()
            event(_LOGGER, "waiting", missing=what)

    def _carry_out(self, told: Assignment, job: JobRequest) -> Assignment | None:
        """Has a process carry the job out, until that ends; returns the lead's word if the cluster ends meanwhile."""
        event(_LOGGER, "job", job=told.number, run=f"{told.run:016x}", model=job.model)
        command = [*self._command, *flags_for(self._config, job, told.run)]
        # Nothing is kept: what it says is passed on.
        child = Child(f"job {told.number}", command, Path(os.devnull), self._events.put, again=True)
        watch = _Watch(child, self._config.grace)
        closing, beat = None, time.monotonic() + self._beat
        while True:
            if self._why:
                watch.end(0.0)
            happened = self._next(watch.due if self._why else min(beat, watch.due))
            if isinstance(happened, Exited):
                break
            if isinstance(happened, Line):
                watch.line(happened)
            watch.act()
            if time.monotonic() >= beat and not self._why and closing is None:
                heard = self._ask(0.0, (told.number, told.run))
                if heard is not None and (heard.over or heard.closing):
                    watch.end(_DRAIN)
                    closing = heard if heard.closing else closing
                beat = time.monotonic() + self._beat
        code = child.exit_code()
        self._parts += 1
        reason, part = watch.reason(code), self._parts
        self._ended = Carried(number=told.number, run=told.run, exit_code=code, reason=reason, part=part)
        event(_LOGGER, "job_left", job=told.number, code=code)
        return closing

    def _next(self, until: float) -> Event | None:
        try:
            return self._events.get(timeout=max(0.0, until - time.monotonic()))
        except queue.Empty:
            return None


class _Watch:
    """A job's process: passes its lines on, keeps its error, and ends it when that is due."""

    def __init__(self, child: Child, grace: float, clock: Callable[[], float] = time.monotonic) -> None:
        self._child = child
        self._grace = grace
        self._clock = clock
        self._signal = signal.SIGTERM
        self.due = float("inf")
        self._words = ""

    def line(self, line: Line) -> None:
        """Passes a line on."""
        stream: TextIO = sys.stdout if line.stdout else sys.stderr
        if not line.stdout and line.text.startswith(_ERROR):
            self._words = line.text.removeprefix(_ERROR).strip()
        with suppress(BrokenPipeError):
            print(line.text, file=stream, flush=True)

    def reason(self, code: int) -> str:
        """Why it ended, by its own words if it had any; nothing if it ended well."""
        if code > 128:
            return f"ended by signal {code - 128}"
        return (self._words or f"exit code {code}") if code else ""

    def end(self, seconds: float) -> None:
        """Has the process ended by a signal unless it ends within that time by itself."""
        if self._signal is signal.SIGTERM:
            self.due = min(self.due, self._clock() + seconds)

    def act(self) -> None:
        """Sends the signal that is due, and after the grace time the one that cannot be ignored."""
        if self._clock() >= self.due:
            self._child.signal(self._signal)
            self.due = self._clock() + self._grace
            self._signal = signal.SIGKILL
