"""What the job waits for, and for how long it does."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Done

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.job import Job


class Waits:
    """The job's waits for somebody who is not there; each ends by one of the limits.

    Not guarded: used by the lead's event loop alone.
    """

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._unstarted_since: float | None = None

    def begin(self) -> None:
        """Begins the wait for the start anew: the opener's values, or its successor, are awaited from now on."""
        self._unstarted_since = None

    def reason(self, job: Job) -> str:
        """What keeps the job from going on, for people; empty while it runs."""
        missing, training = job.shards.missing(), job.training
        if job.fallen:
            return f"the shards to return to a checkpoint: {job.fallen}"
        if missing and job.phase in ("EMPTY", "RESTORING"):
            return "shard " + ", ".join(map(str, missing)) + f" of {job.shards.count} to connect to the lead"
        if job.phase == "RESTORING":
            return "a worker, which may give its tables another capacity"
        if job.phase == "OPENING" and job.definition is not None:
            opener = job.definition.opener
            return f"worker {opener.worker} ({opener.name}) to send the initial values" if opener else ""
        if training is None or job.done is not None:
            return ""
        if job.attendance.leavers:
            return "shard " + ", ".join(map(str, job.attendance.leavers)) + " to be started again: it was told to end"
        if training.held:
            return "a checkpoint to be written"
        if not training.started:
            return f"workers: {len(job.members)} of {training.rounds.needed} have joined"
        if training.lacking:
            lost = list(job.members.lost.values())
            return f"a replacement of {', '.join(lost)}" if lost else "more workers"
        return ""

    def end(self, job: Job, now: float) -> Done | None:
        """How the job ends, if somebody was waited for too long."""
        training, limits = job.training, self._limits
        patience = limits.link if job.saving is None else limits.recovery
        gone = job.shards.gone(now, patience) if job.phase != "EMPTY" else None
        if gone is not None:
            return Done(4, f"shard {gone.shard} ({gone.address}) has been gone for {patience:g} s")
        held_up = bool(job.shards.missing())
        if training is not None and not held_up and not training.settle(now, limits.rejoin):
            lost = " and ".join(f"{worker} was lost" for worker in job.members.lost.values())
            why = f"{lost} and nobody took its place" if lost else "workers are missing"
            return Done(4, f"{why} for {limits.rejoin:g} s")
        if job.phase == "RESTORING" and not held_up:
            # A worker is waited for now: a shard that goes meanwhile has all the time to come back.
            self.begin()
        elif job.phase == "RESTORING" and self._longer(limits.recovery, now):
            return Done(4, f"not gone on within {limits.recovery:g} s: the job waits for {self.reason(job)}")
        if job.awaits_first:
            return None
        if job.phase == "RUNNING" and self.overdue(job, now):
            return Done(4, f"not started within {limits.start:g} s: {self.reason(job)}")
        return None

    def overdue(self, job: Job, now: float) -> bool:
        """Whether the job has not started for longer than it may."""
        started = job.training is not None and job.training.started
        return not started and self._longer(self._limits.start, now)

    def _longer(self, seconds: float, now: float) -> bool:
        if self._unstarted_since is None:
            self._unstarted_since = now
        return now - self._unstarted_since > seconds
