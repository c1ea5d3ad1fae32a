"""The job: what happened goes in, entries of the log come out."""

from __future__ import annotations

from collections.abc import Mapping

from grpc_ps.psserver.lead.clipping import Squares
from grpc_ps.psserver.lead.evaluation import Evaluation
from grpc_ps.psserver.lead.joining import Definition, JoinReply, JoinRequest, check_join
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Admit, Answer, Dismiss, Done, Log, Open, Pin, Result, Stop
from grpc_ps.psserver.lead.membership import Member, Membership
from grpc_ps.psserver.lead.parts import Parts, Push
from grpc_ps.psserver.lead.pins import Pins
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.rounds import rounds_for
from grpc_ps.psserver.lead.settings import Settings, check_agreement, complete
from grpc_ps.psserver.lead.shards import Shard, Shards
from grpc_ps.psserver.lead.steering import Change
from grpc_ps.psserver.lead.training import Training
from grpc_ps.psserver.lead.until import parse_until
from grpc_ps.psserver.lead.waits import Waits


class Job:
    """The state machine of shard 0.

    Every method says what happened; afterwards `log` has the entries that follow from it. Not guarded and never
    blocks: used by the lead's event loop alone, with times of one monotonic clock in seconds.

    Attributes:
        phase: EMPTY, OPENING, RUNNING or STOPPED.
        done: how it ended, None before.
        evaluation: who evaluates, and what came of it.
        pins: the snapshots that readers hold.
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
        self.evaluation = Evaluation()
        self._presets = presets
        self.training: Training | None = None
        self._parts = Parts(shard_count)
        self.pins = Pins(limits.pin, self.shards)
        self.waits = Waits(limits)
        # Whether data ends is known when a worker comes.
        check_agreement(complete(presets, {"examples": 1}), presets)

    @property
    def step(self) -> int:
        """The global step."""
        return self.training.step if self.training else 0

    def join(self, request: JoinRequest, now: float) -> JoinReply:
        """Makes a worker a member, or the opener, or tells it what it waits for.

        Raises:
            Refusal: WRONG_RUN, MISMATCH, FENCED or FULL.
        """
        check_join(request, run=self.run, shards=self.shards.count, definition=self.definition, presets=self._presets)
        if self.done is not None:
            return JoinReply(state="DONE")
        if (known := self.members.of_nonce(request.nonce)) is not None:
            known.last_beat = now
            return self._joined(known)
        if self.phase != "RUNNING" and (waiting_for := self.waiting_for()):
            return JoinReply(state="WAITING", waiting_for=waiting_for)
        definition = self.definition
        settings = definition.settings if definition else complete(self._presets, request.stated, request.defaults)
        places = (self.training.rounds if self.training else rounds_for(settings)).places
        member = self.members.admit(request.nonce, request.index, request.name, places, now)
        if member is None:
            return JoinReply(state="WAITING", waiting_for=f"index {request.index} to be free: its holder is silent")
        self.log.append(Admit(member.worker, member.incarnation))
        if self.phase == "EMPTY":
            self.phase = "OPENING"
            self.definition = Definition(request.model, settings, request.parameters, member)
            self.evaluation.until = parse_until(str(settings["until"]))
        return self._joined(member)

    def _joined(self, member: Member) -> JoinReply:
        self.evaluation.assign(self.members)
        opening = self.phase == "OPENING" and self.definition is not None and self.definition.opener is member
        return JoinReply(state="OPENER" if opening else "MEMBER", member=member)

    def waiting_for(self) -> str:
        """What keeps the job from going on, for people; empty while it runs."""
        return self.waits.reason(self)

    def begun(self, push: Push, now: float) -> None:
        """A push of gradients has begun to arrive; if its round is closed it is answered without the rest."""
        member = self.members.get(push.id.worker, push.id.incarnation)
        if member is None or self.training is None or self.done is not None:
            return
        member.last_beat = now
        if push.id.sequence == member.sequence + 1 and not member.pending and self.training.begin(member, push):
            self._parts.drop(member.incarnation)
            self._proceed(now)

    def whole(self, shard: int, push: Push, non_finite: str, now: float, squares: Squares = ()) -> None:
        """A shard holds its part of a push; once all do, the push is decided."""
        member = self.members.get(push.id.worker, push.id.incarnation)
        if member is None:
            return
        member.last_beat = now
        if push.id.sequence <= max(member.sequence, member.pending):
            return
        try:
            whole = self._parts.report(shard, push, non_finite, squares)
            if whole is None:
                return
            self._decide(member, *whole)
        except Refusal as refusal:
            self._lose(member, refusal)
        self._proceed(now)

    def _decide(self, member: Member, push: Push, non_finite: str, squares: Squares) -> None:
        if self.done is not None:
            member.decide(Result(push.id.sequence, "DONE"))
            self._tell(member, self.done)
        elif push.values:
            self._open(member, push)
        elif self.training is None:
            raise Refusal("INVALID_PUSH", f"worker {member.worker} pushes gradients before the job is open")
        else:
            self.training.decide(member, push, non_finite, squares)

    def _open(self, member: Member, push: Push) -> None:
        definition = self.definition
        if self.phase != "OPENING" or definition is None or definition.opener is not member:
            raise Refusal("INVALID_PUSH", f"worker {member.worker} does not open the job")
        self.training = Training(
            definition.settings, len(definition.parameters), self.shards.count, self.members, self.log
        )
        self.waits.begin()
        self.phase = "RUNNING"
        self.opened += 1
        self.log.append(Open(push.id))
        member.decide(Result(push.id.sequence, "APPLIED"))
        # Initial values count nowhere.
        member.outcomes.clear()
        member.progress = None

    def reduced(self, shard: int, position: int, squares: Squares, now: float) -> None:
        """A shard has made the mean that the entry at `position` asked for."""
        if self.training is not None and self.done is None:
            self.training.reduced(shard, position, squares)
            self._proceed(now)

    def ask(self, worker: int, incarnation: int, sequence: int, now: float, *, out_of_data: bool = False) -> None:
        """A worker that is attached everywhere asks what to do next; `sequence` is the last push it sent."""
        member = self.members.get(worker, incarnation)
        if member is None or sequence > member.sequence:
            return
        if self.training is not None and out_of_data:
            self.training.exhaust(member)
        last = member.last
        if last is not None and member.owed is None:
            member.owed = Result(last.sequence, last.outcome, last.staleness, last.parameter, repeated=True)
        if self.done is not None:
            self._tell(member, self.done)
        elif self.training is not None and member.batch is not None:
            self.training.release(member, member.batch)
        else:
            member.waiting = not member.out_of_data
            self._proceed(now)

    def _proceed(self, now: float) -> None:
        if self.training is None or self.done is not None:
            return
        if (done := self.training.proceed(now)) is not None:
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

    def report(self, worker: int, incarnation: int, global_step: int, metrics: Mapping[str, float], now: float) -> None:
        """A worker has evaluated the values of a step; that may end the job.

        Raises:
            Refusal: FENCED, where the caller is no member any more; USAGE for one that does not hold the lease to
                evaluate, and for a step that is yet to come.
        """
        member = self.beat(worker, incarnation, now)
        if reason := self.evaluation.take(member, global_step, metrics, self.step):
            self.stop(Done(0, reason))

    def change(self, change: Change, now: float) -> None:
        """Changes the job while it runs; Refusal: NOT_OPEN if none does, MISMATCH for what is not possible."""
        definition, training = self.definition, self.training
        if definition is None or training is None or self.done is not None:
            raise Refusal("NOT_OPEN", "no job runs here")
        definition.settings = change.settings(definition.settings, len(self.members))
        training.adopt(change, definition.settings)
        self._proceed(now)

    def leave(self, worker: int, incarnation: int, now: float) -> None:
        """A worker goes; its number is handed out again."""
        if (member := self.members.get(worker, incarnation)) is not None:
            self._lose(member, None)
            self._proceed(now)

    def _lose(self, member: Member, refusal: Refusal | None) -> None:
        if self.training is not None:
            self.training.take_back(member)
        self._parts.drop(member.incarnation)
        self.members.remove(member)
        self.evaluation.assign(self.members)
        reason, detail = (refusal.reason, refusal.detail) if refusal else ("", "")
        self.log.append(Dismiss(member.worker, member.incarnation, reason, detail, keep=member.pending))
        if self.phase == "OPENING" and self.definition is not None and self.definition.opener is member:
            self.phase = "EMPTY"
            self.definition = None
            self.waits.begin()

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
        """An update's result is not finite: the job ends."""
        self.stop(Done(5, f"the update to step {step} made parameter {parameter!r} infinite or NaN"))

    def pin(self, snapshot: int, now: float) -> None:
        """Pins this position's values for a reader.

        Raises:
            Refusal: NOT_OPEN without values, FULL with too many readers.
        """
        if self.training is None:
            raise Refusal("NOT_OPEN", f"no values yet: the job waits for {self.waiting_for() or 'its first worker'}")
        self.pins.add(snapshot, now)
        self.log.append(Pin(snapshot, self.step, int(self.limits.pin * 1000)))

    def tick(self, now: float) -> None:
        """Time has passed: leases, links and waits may have ended."""
        for member in self.members.expired(now):
            why = f"worker {member.worker} lost its lease: no heartbeat for {self.limits.lease:g} s"
            self._lose(member, Refusal("FENCED", why))
        self._proceed(now)
        if self.done is not None:
            return
        if self.phase == "OPENING" and self.definition is not None and self.waits.overdue(self, now):
            why = f"worker {self.definition.opener.worker} sent no initial values for {self.limits.start:g} s"
            self._lose(self.definition.opener, Refusal("FENCED", why))
        if (done := self.waits.end(self, now)) is not None:
            self.stop(done)

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
