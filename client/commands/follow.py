"""Following one job of a cluster's queue until it ends: what `psctl submit` and `psctl watch --job` show."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, suppress
from types import FrameType, TracebackType
from typing import Protocol, TextIO

from grpc_ps.client.client import PSClient
from grpc_ps.client.commands.idle import workers_line
from grpc_ps.client.commands.tables import result_text
from grpc_ps.client.commands.view import step_bars
from grpc_ps.client.jobs import JobStatus
from grpc_ps.client.joining import SAY_EVERY
from grpc_ps.client.shared.errors import JobFailed, PeerLost, PeerUnreachable, PsError, UsageError

# Seconds for which a lead that has answered before may be out of reach.
_PATIENCE = 60.0
# Seconds between two looks at a job whose workers are leaving.
_LOOK_SECONDS = 0.1


class CtrlC:
    """Ctrl-C as a flag: an exception in the middle of gRPC's own code may leave a lock held for good.

    The second one ends the process at once.
    """

    def __init__(self) -> None:
        self.came = False
        signal.signal(signal.SIGINT, self._note)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.came = True
        signal.signal(signal.SIGINT, signal.SIG_DFL)


class Follower:
    """Follows jobs of a client's cluster.

    Args:
        interval: seconds between two readings.
        may_return: whether a lead that is gone may be started again, however long that takes.
    """

    def __init__(
        self, client: PSClient, interrupt: CtrlC, interval: float, *, may_return: Callable[[], bool] = lambda: False
    ) -> None:
        self._jobs = client.jobs
        self._addresses = client.addresses
        self._interrupt = interrupt
        self._interval = interval
        self._may_return = may_return
        self._heard = time.monotonic()
        self._known = False
        self._beside = ""

    def follow(self, number: int, *, as_json: bool = False, bars: bool = True) -> JobStatus:
        """Shows the job until it has ended, and how it did; as JSON that is one line on stdout.

        Raises:
            JobFailed: it has not ended well; carries its exit code.
            KeyboardInterrupt: Ctrl-C. The job goes on; how to see it again has been said.
        """
        out = sys.stderr if as_json else sys.stdout
        with _Bar(out) if bars and out.isatty() else _Lines(out) as show:
            now = self._until_ended(number, show)
        if now is None:
            print(
                f"job {number} goes on: psctl watch --job {number} shows it again, psctl cancel {number} ends it",
                file=out,
                flush=True,
            )
            raise KeyboardInterrupt
        if as_json:
            print(json.dumps(now.to_dict()), flush=True)
        check_ended(now)
        print(ending(now), file=out, flush=True)
        return now

    def end(self, number: int) -> JobStatus | None:
        """Waits until a job has ended of which the last step is done: its workers are leaving. None after Ctrl-C.

        Raises:
            PeerUnreachable, PeerLost: the lead is gone.
        """
        while not (now := self._jobs.get(number)).has_ended:
            if self._interrupt.came:
                return None
            time.sleep(_LOOK_SECONDS)
        return now

    def _until_ended(self, number: int, show: Show) -> JobStatus | None:
        """Returns the last reading, None after Ctrl-C."""
        while not self._interrupt.came:
            if (now := self._read(number)) is not None:
                show(now, self._note(now))
                if now.has_ended:
                    return now
            until = time.monotonic() + self._interval
            while (left := until - time.monotonic()) > 0 and not self._interrupt.came:
                time.sleep(min(left, _LOOK_SECONDS))
        return None

    def _note(self, now: JobStatus) -> str:
        """Returns what is to be added to a job that waits in the queue: that nobody is there to carry it out."""
        if now.state != "queued" or not now.waiting_for:
            return ""
        with suppress(PsError):  # A lead that goes away meanwhile is the next reading's matter.
            self._beside = "" if self._jobs.standing() else workers_line((), self._addresses)
        return self._beside

    def _read(self, number: int) -> JobStatus | None:
        """Returns a reading, None while a lead that has answered before is out of reach."""
        try:
            now = self._jobs.get(number)
        except (PeerUnreachable, PeerLost) as error:
            if not self._known:
                raise
            if time.monotonic() - self._heard > _PATIENCE and not self._may_return():
                raise PeerLost(f"job {number}: the lead has not answered for {_PATIENCE:g} s ({error})") from error
            return None
        except UsageError as error:
            if not self._known:
                raise
            raise JobFailed(f"job {number} is gone: the lead that had it is, and its queue with it") from error
        self._heard, self._known = time.monotonic(), True
        return now


def check_ended(now: JobStatus) -> None:
    """Raises JobFailed, with the job's exit code, for one that has not ended well."""
    if now.exit_code:
        raise JobFailed(
            f"job {now.number} was {now.reason}"
            if now.state == "cancelled"
            else f"job {now.number} has failed with exit code {now.exit_code}: {now.reason}",
            exit_code=now.exit_code,
        )


def ending(now: JobStatus) -> str:
    """Returns in one line how a job ended: its step, metrics, or without any its last loss, and time."""
    parts = [f"job {now.number}: {now.reason or now.state}: global step {now.global_step}"]
    if result := result_text(now.metrics, now.loss):
        parts.append(result)
    if now.started_ms is not None and now.ended_ms is not None:
        parts.append(f"{(now.ended_ms - now.started_ms) / 1000:.1f} s")
    return ", ".join(parts)


class Show(Protocol):
    """Takes each reading, and what is to be said beside."""

    def __call__(self, now: JobStatus, note: str) -> None:
        """Shows it."""


class Speed:
    """How fast a job goes, from one reading to the next: examples a second of all workers, and seconds a batch."""

    def __init__(self) -> None:
        self._before: JobStatus | None = None

    def __call__(self, now: JobStatus) -> tuple[float, float] | None:
        """Takes the next reading; None where it has nothing new, or there is nothing to compare it with.

        Before the first gradient time does not count: workers start.
        """
        before = self._before
        if before is None or before.generation != now.generation or not now.batches:
            self._before = now
            return None
        batches, seconds = now.batches - before.batches, (now.running_ms - before.running_ms) / 1000
        if batches <= 0 or seconds <= 0:
            return None
        self._before = now
        return (now.examples - before.examples) / seconds, seconds / batches


def line_of(now: JobStatus, speed: tuple[float, float] | None) -> str:
    """Returns a reading in the field's form."""
    loss = "" if now.loss is None else f", loss = {now.loss:.3g}"
    pace = "" if speed is None else f" ({speed[0]:.1f} examples/sec; {speed[1]:.3f} sec/batch)"
    return f"step {now.global_step}{loss}{pace}"


def state_of(now: JobStatus, note: str = "") -> str:
    """Returns what a job does that is not just running, and what else there is to say."""
    waiting = f": waiting for {now.waiting_for}" if now.waiting_for else ""
    return f"job {now.number} ({now.model}): {now.state}{waiting}" + (f"; {note}" if note else "")


class _Lines(AbstractContextManager["_Lines"]):
    """A line for each reading that has something new, and again and again what is waited for."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._speed = Speed()
        self._shown = ""
        self._said = 0.0

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        pass

    def __call__(self, now: JobStatus, note: str) -> None:
        state = state_of(now, note)
        if now.has_ended:
            return
        if state != self._shown or (now.waiting_for and time.monotonic() - self._said >= SAY_EVERY):
            self._said = time.monotonic()
            self._say(state)
        if (speed := self._speed(now)) is not None:
            self._say(line_of(now, speed))
        self._shown = state

    def _say(self, text: str) -> None:
        print(text, file=self._out, flush=True)


class _Bar(AbstractContextManager["_Bar"]):
    """A progress bar, as `psctl launch` has it."""

    def __init__(self, out: TextIO) -> None:
        self._speed = Speed()
        self._pace: tuple[float, float] | None = None
        self._progress = step_bars(out)
        self._task = self._progress.add_task("global step", total=None, note="")

    def __enter__(self) -> _Bar:
        self._progress.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        self._progress.stop()

    def __call__(self, now: JobStatus, note: str) -> None:
        self._pace = self._speed(now) or self._pace
        note = state_of(now, note) if now.state != "running" or now.waiting_for else line_of(now, self._pace)
        self._progress.update(
            self._task, completed=now.global_step, total=now.steps or None, note=note, refresh=now.has_ended
        )
