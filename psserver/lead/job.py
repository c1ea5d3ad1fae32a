"""The job: what happened goes in, entries of the log come out."""

from __future__ import annotations

from grpc_ps.psserver.lead.joining import Definition, JoinReply, JoinRequest
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Admit, Answer, Dismiss, Done, Log, Open, Pin, Result, Stop
from grpc_ps.psserver.lead.membership import Member, Membership
from grpc_ps.psserver.lead.parts import Parts, Push
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.rounds import rounds_for
from grpc_ps.psserver.lead.settings import Settings, Value, check_agreement, complete
from grpc_ps.psserver.lead.shards import Shard, Shards
from grpc_ps.psserver.lead.training import Training

MAX_PINS = 8
"""Snapshots that readers may hold at once."""


class Job:
    """The state machine of shard 0.

    Every method says what happened; afterwards `log` has the entries that follow from it. Not guarded and never
    blocks: used by the lead's event loop alone, with times of one monotonic clock in seconds.

    Attributes:
        phase: EMPTY, OPENING, RUNNING or STOPPED.
        done: how it ended, None before.
    """

    def __init__(self, *, run: int, shard_count: int, presets: Settings, limits: Limits) -> None:
        self.run = run
        self.limits = limits
        self.log = Log()
        self.shards = Shards(shard_count)
        self.members = Membership(limits.lease)
        self.phase = "EMPTY"
        self.opened = 0
        self.done: Done | None = None
        self.definition: Definition | None = None
        self.evaluator = 0
        self._presets = presets
        self.training: Training | None = None
        self.last_lost = ""
        self._parts = Parts(shard_count)
        self._pins: dict[int, float] = {}
        self._unstarted_since: float | None = None
        check_agreement(complete(presets), presets)

    @property
    def step(self) -> int:
        """The global step: updates applied to the model."""
        return self.training.step if self.training else 0

    def join(self, request: JoinRequest, now: float) -> JoinReply:
        """Makes a worker a member, or the opener, or tells it what it waits for.

        Raises:
            Refusal: WRONG_RUN, MISMATCH, FENCED or FULL.
        """
        self._check_join(request)
        if self.done is not None:
            return JoinReply(state="DONE")
        known = self.members.of_nonce(request.nonce)
        if known is not None:
            known.last_beat = now
            return self._joined(known)
        waiting_for = self.waiting_for()
        if waiting_for and self.phase != "RUNNING":
            return JoinReply(state="WAITING", waiting_for=waiting_for)
        settings = self._settings_for(request)
        places = (self.training.rounds if self.training else rounds_for(settings)).places
        member = self.members.admit(request.nonce, request.index, request.name, places, now)
        if member is None:
            return JoinReply(state="WAITING", waiting_for=f"index {request.index} to be free: its holder is silent")
        self.log.append(Admit(member.worker, member.incarnation))
        if self.phase == "EMPTY":
            self.phase = "OPENING"
            self.definition = Definition(request.model, settings, request.parameters, member)
        return self._joined(member)

    def _joined(self, member: Member) -> JoinReply:
        self._assign_evaluator()
        opening = self.phase == "OPENING" and self.definition is not None and self.definition.opener is member
        return JoinReply(state="OPENER" if opening else "MEMBER", member=member)

    def _check_join(self, request: JoinRequest) -> None:
        if request.run and request.run != self.run:
            raise Refusal("WRONG_RUN", "that job is gone: another one runs here")
        if request.shard_count != self.shards.count:
            raise Refusal("MISMATCH", f"--ps lists {request.shard_count} shards, the job has {self.shards.count}")
        if self.definition is None:
            check_agreement(self._presets, request.stated, "shard 0")
            return
        self.definition.check(request)

    def _settings_for(self, request: JoinRequest) -> dict[str, Value]:
        if self.definition is not None:
            return self.definition.settings
        return complete(self._presets, request.stated, request.defaults)

    def waiting_for(self) -> str:
        """What keeps the job from running, for people; empty while it runs."""
        missing = self.shards.missing()
        if missing and self.phase == "EMPTY":
            return "shard " + ", ".join(map(str, missing)) + f" of {self.shards.count} to connect to the lead"
        if self.phase == "OPENING" and self.definition is not None:
            opener = self.definition.opener
            return f"worker {opener.worker} ({opener.name}) to send the initial values"
        if self.training is not None and not self.training.started:
            return f"workers: {len(self.members)} of {self.training.rounds.needed} have joined"
        return ""

    def whole(self, shard: int, push: Push, non_finite: str, now: float) -> None:
        """A shard holds its part of a push; once all do, the push is decided."""
        member = self.members.get(push.id.worker, push.id.incarnation)
        if member is None:
            return
        member.last_beat = now
        if push.id.sequence <= max(member.sequence, member.pending):
            return
        try:
            whole = self._parts.report(shard, push, non_finite)
            if whole is not None:
                self._decide(member, *whole)
        except Refusal as refusal:
            self._lose(member, refusal)
        self._proceed(now)

    def _decide(self, member: Member, push: Push, non_finite: str) -> None:
        if push.values:
            self._open(member, push)
        elif self.done is not None:
            member.decide(Result(push.id.sequence, "DONE"))
            self._tell(member, self.done)
        elif self.training is not None:
            self.training.decide(member, push, non_finite)

    def _open(self, member: Member, push: Push) -> None:
        definition = self.definition
        if self.phase != "OPENING" or definition is None or definition.opener is not member:
            raise Refusal("INVALID_PUSH", f"worker {member.worker} does not open the job")
        self.training = Training(definition.settings, self.members, self.log)
        self._unstarted_since = None
        self.phase = "RUNNING"
        self.opened += 1
        self.log.append(Open(push.id))
        member.decide(Result(push.id.sequence, "APPLIED"))
        member.outcomes.clear()

    def ask(self, worker: int, incarnation: int, sequence: int, now: float) -> None:
        """A worker that is attached everywhere asks what to do next; `sequence` is the last push it sent."""
        member = self.members.get(worker, incarnation)
        if member is None or sequence > member.sequence:
            return
        last = member.last
        if last is not None and member.owed is None:
            member.owed = Result(last.sequence, last.outcome, last.staleness, last.parameter, repeated=True)
        if self.done is not None:
            self._tell(member, self.done)
        elif self.training is not None and member.batch is not None:
            self.training.release(member, member.batch)
        else:
            member.waiting = True
            self._proceed(now)

    def _proceed(self, now: float) -> None:
        self._assign_evaluator()
        if self.training is None or self.done is not None:
            return
        done = self.training.proceed(now)
        if done is not None:
            self.stop(done)

    def beat(self, worker: int, incarnation: int, now: float) -> Member:
        """Keeps a member's lease.

        Raises:
            Refusal: FENCED, where the caller is no member any more.
        """
        member = self.members.get(worker, incarnation)
        if member is None:
            holder = self.members.at(worker)
            held = f"; {holder.name} has its index" if holder else ""
            raise Refusal("FENCED", f"worker {worker} is no member any more: its lease ended{held}")
        member.last_beat = now
        return member

    def leave(self, worker: int, incarnation: int, now: float) -> None:
        """A worker goes; its number is handed out again."""
        member = self.members.get(worker, incarnation)
        if member is not None:
            self._lose(member, None)
            self._proceed(now)

    def _lose(self, member: Member, refusal: Refusal | None) -> None:
        if self.training is not None:
            self.training.take_back(member)
        self._parts.drop(member.incarnation)
        self.members.remove(member)
        self.last_lost = f"worker {member.worker} ({member.name})"
        reason, detail = (refusal.reason, refusal.detail) if refusal else ("", "")
        self.log.append(Dismiss(member.worker, member.incarnation, reason, detail, keep=member.pending))
        if self.phase == "OPENING" and self.definition is not None and self.definition.opener is member:
            self.phase = "EMPTY"
            self.definition = None
            self._unstarted_since = None

    def _assign_evaluator(self) -> None:
        if all(member.incarnation != self.evaluator for member in self.members):
            self.evaluator = next((member.incarnation for member in self.members), 0)

    def follow(self, shard: int, count: int, boot: int, address: str, now: float) -> Shard:
        """A shard's link is up.

        Raises:
            Refusal: MISMATCH or LOST_STATE; the latter also ends the job.
        """
        try:
            return self.shards.connect(shard, count, boot, address, opened=self.phase != "EMPTY")
        except Refusal as refusal:
            if refusal.reason == "LOST_STATE":
                self.stop(Done(4, refusal.detail))
            raise

    def overflow(self, parameter: str, step: int) -> None:
        """An update's result is not finite: nobody may go on from it."""
        self.stop(Done(5, f"the update to step {step} made parameter {parameter!r} infinite or NaN"))

    def pin(self, snapshot: int, now: float) -> None:
        """Pins this position's values for a reader.

        Raises:
            Refusal: NOT_OPEN without values, FULL with too many readers.
        """
        self._pins = {name: end for name, end in self._pins.items() if end > now}
        if self.training is None:
            raise Refusal("NOT_OPEN", f"no values yet: the job waits for {self.waiting_for() or 'its first worker'}")
        if len(self._pins) >= MAX_PINS:
            raise Refusal("FULL", f"{MAX_PINS} readers hold snapshots; try again")
        self._pins[snapshot] = now + self.limits.pin
        self.log.append(Pin(snapshot, self.step, int(self.limits.pin * 1000)))

    def unpin(self, snapshot: int) -> None:
        """A reader has what it wanted."""
        self._pins.pop(snapshot, None)

    def tick(self, now: float) -> None:
        """Time has passed: leases, links and waits may have ended."""
        for member in self.members.expired(now):
            silent = f"no heartbeat for {self.limits.lease:g} s"
            self._lose(member, Refusal("FENCED", f"worker {member.worker} lost its lease: {silent}"))
        self._proceed(now)
        if self.done is None:
            self._check_waits(now)

    def _check_waits(self, now: float) -> None:
        if self.phase == "OPENING" and self.definition is not None and self._overdue(now):
            why = f"worker {self.definition.opener.worker} sent no initial values for {self.limits.start:g} s"
            self._lose(self.definition.opener, Refusal("FENCED", why))
        gone = self.shards.gone(now, self.limits.link) if self.phase != "EMPTY" else None
        if gone is not None:
            self.stop(Done(4, f"shard {gone.shard} ({gone.address}) has been gone for {self.limits.link:g} s"))
        elif self.training is not None and self.training.stalled(now, self.limits.rejoin):
            lost = f"{self.last_lost} was lost and nobody took its place for {self.limits.rejoin:g} s"
            self.stop(Done(4, lost))
        elif self.phase == "RUNNING" and self._overdue(now):
            self.stop(Done(4, f"not started within {self.limits.start:g} s: {self.waiting_for()}"))

    def _overdue(self, now: float) -> bool:
        if self.training is not None and self.training.started:
            return False
        if self._unstarted_since is None:
            self._unstarted_since = now
        return now - self._unstarted_since > self.limits.start

    def stop(self, done: Done) -> None:
        """Ends the job: every member is told, pushes that were not applied are not applied any more."""
        if self.done is not None:
            return
        self.done = done
        self.phase = "STOPPED"
        for member in self.members:
            if member.pending:
                member.decide(Result(member.pending, "DONE"))
            self._tell(member, done)
        self.log.append(Stop(self.step, done))

    def _tell(self, member: Member, done: Done) -> None:
        result, member.owed = member.owed, None
        self.log.append(Answer(member.worker, member.incarnation, self.step, result, done=done))

    def finished(self) -> bool:
        """Whether the job has ended and every worker has gone."""
        return self.done is not None and not len(self.members)
