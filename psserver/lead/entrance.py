"""How workers become members of the job, and cease to be."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from grpc_ps.psserver.lead.joining import Definition, JoinReply, JoinRequest, check_join
from grpc_ps.psserver.lead.log import Admit, Dismiss
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.resuming import restated, with_capacities
from grpc_ps.psserver.lead.rounds import rounds_for
from grpc_ps.psserver.lead.settings import Settings, check_agreement, complete
from grpc_ps.psserver.lead.until import parse_until

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.job import Job


class Entrance:
    """Lets workers in and out. Not guarded: used by the lead's event loop alone.

    Attributes:
        awaits_first: the job has begun from a checkpoint and nobody has joined since: the first one may state other
            limits, and until then nothing goes on.

    Args:
        presets: settings that the lead fixes.
    """

    def __init__(self, presets: Settings, *, awaits_first: bool) -> None:
        self.awaits_first = awaits_first
        self._presets = presets

    def join(self, job: Job, request: JoinRequest, now: float) -> JoinReply:
        """Makes a worker a member, or the opener, or tells it what it waits for.

        Raises:
            Refusal: WRONG_RUN, MISMATCH, CHECKPOINT, FENCED or FULL.
        """
        if job.fallen:
            return JoinReply(state="WAITING", waiting_for=job.waiting_for())
        self._restate(job, request)
        check_join(request, run=job.run, shards=job.shards.count, definition=job.definition, presets=self._presets)
        job.attendance.complete(limits_stated=True)
        if job.done is not None:
            return JoinReply(state="DONE")
        if job.queued and job.phase == "EMPTY" and not request.run:
            return JoinReply(state="WAITING", waiting_for="a worker of the job that was submitted to open it")
        if (known := job.members.of_nonce(request.nonce)) is not None:
            known.last_beat = now
            return self._joined(job, known)
        if job.phase != "RUNNING" and (waiting_for := job.waiting_for()):
            return JoinReply(state="WAITING", waiting_for=waiting_for)
        member = self._admit(job, request, now)
        if member is None:
            return JoinReply(state="WAITING", waiting_for=f"index {request.index} to be free: its holder is silent")
        self.awaits_first = False
        job.log.append(Admit(member.worker, member.incarnation))
        if job.phase == "EMPTY":
            self._define(job, request, member)
        return self._joined(job, member)

    def _admit(self, job: Job, request: JoinRequest, now: float) -> Member | None:
        definition = job.definition
        settings = definition.settings if definition else complete(self._presets, request.stated, request.defaults)
        places = (job.training.rounds if job.training else rounds_for(settings)).places
        return job.members.admit(request.nonce, request.index, request.name, places, now)

    def _define(self, job: Job, request: JoinRequest, opener: Member) -> None:
        settings = complete(self._presets, request.stated, request.defaults)
        job.phase = "OPENING"
        job.definition = Definition(
            model=request.model, settings=settings, parameters=request.parameters, opened=settings, opener=opener
        )
        job.evaluation.until = parse_until(str(settings["until"]))

    def _joined(self, job: Job, member: Member) -> JoinReply:
        job.evaluation.assign(job.members)
        opening = job.phase == "OPENING" and job.definition is not None and job.definition.opener is member
        return JoinReply(state="OPENER" if opening else "MEMBER", member=member)

    def _restate(self, job: Job, request: JoinRequest) -> None:
        """Takes what a worker states otherwise, where it may."""
        definition = job.definition
        # Also between its last step and its end, to which a job that has gone back comes anew.
        over = job.is_kept or (job.keep_alive and job.training is not None and job.training.is_over())
        over = over and not job.queued
        if definition is None or not (self.awaits_first or over) or request.run not in (0, job.run):
            return
        definition = self._limited(job, definition, request)
        definition.check_model(request)
        check_agreement(self._presets, request.stated, "shard 0")
        news = definition.news(request.stated)
        settings = restated(definition.settings, news, "this worker") if news else None
        job.definition = definition
        if settings is not None and job.restate(settings):
            # Whoever states them again is right, and whoever states what was at first is not.
            definition.opened = {**definition.opened, **news}
        job.keep_stated()

    def _limited(self, job: Job, definition: Definition, request: JoinRequest) -> Definition:
        """The definition with the capacities that the worker's tables have, as long as no shard has taken any rows."""
        if not self.awaits_first or job.phase != "RESTORING":
            return definition
        parameters = with_capacities(definition.parameters, request.parameters)
        return definition if parameters == definition.parameters else replace(definition, parameters=parameters)

    def lose(self, job: Job, member: Member, refusal: Refusal | None) -> None:
        """Takes a member out of the job, which is told why unless it left by itself; its number is handed out again."""
        if job.training is not None:
            job.training.take_back(member)
        job.intake.drop(member.incarnation)
        job.members.remove(member)
        job.evaluation.assign(job.members)
        reason, detail = (refusal.reason, refusal.detail) if refusal else ("", "")
        job.log.append(Dismiss(member.worker, member.incarnation, reason, detail, keep=member.pending))
        if job.phase == "OPENING" and job.definition is not None and job.definition.opener is member:
            job.phase = "EMPTY"
            job.definition = None
            job.waits.begin()

    def expire(self, job: Job, now: float) -> None:
        """Loses the members whose lease has ended, and an opener that takes too long."""
        for member in job.members.expired(now):
            why = f"worker {member.worker} lost its lease: no heartbeat for {job.limits.lease:g} s"
            self.lose(job, member, Refusal("FENCED", why))
        opener = job.definition.opener if job.definition else None
        if job.phase == "OPENING" and opener is not None and job.waits.overdue(job, now):
            why = f"worker {opener.worker} sent no initial values for {job.limits.start:g} s"
            self.lose(job, opener, Refusal("FENCED", why))
