"""Who takes part: indices, incarnations, and leases kept by heartbeats."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from grpc_ps.psserver.lead.log import Answer, Done, Release, Result
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.tally import Tally

KEPT_STEPS = 3
"""Earlier releases of a lease whose steps are remembered: each needs a link that broke."""
MAX_ASKERS = 1000
"""Newcomers that may wait for indices whose holders are silent."""


@dataclass(slots=True, kw_only=True)
class Member:
    """A worker's life: what the lead knows of one incarnation.

    Attributes:
        sequence: the last push that is decided; `last` is what became of it.
        pending: the sequence of a push that is whole everywhere and not decided; 0 if none.
        batch: the number leased to it, None if none.
        promised: the number that it was hinted and that is left to it, 0 if none: it has named the rows for that.
        base_steps: steps of the parameters released to it with that number: more than one where a link broke.
        previous_steps: the same of the number that it held before.
        waiting: it wants parameters and a number.
        owed: an outcome that is not answered yet.
        sending: a push that has begun to arrive.
        progress: applied pushes, as the staleness bound counts them; None before it gets its first number.
        applied_step: the step that its last applied push made, None before the first. For people, like `loss`.
        out_of_data: its own share of the data is used up.
        tally: its pushes so far.
        times: where its time went, as it told: names and values of `WorkerTimes`. For people.
        whole_at: when its push became whole everywhere, None once it was released to go on after it.
        held_seconds: times between these two, added up from its second push on: the first may wait for workers that
            still start. For people.
    """

    worker: int
    incarnation: int
    nonce: int
    name: str
    last_beat: float
    sequence: int = 0
    last: Result | None = None
    pending: int = 0
    batch: int | None = None
    promised: int = 0
    base_steps: list[int] = field(default_factory=list)
    previous_steps: list[int] = field(default_factory=list)
    waiting: bool = False
    owed: Result | None = None
    sending: Push | None = None
    progress: int | None = None
    out_of_data: bool = False
    local_step: int = 0
    loss: float | None = None
    applied_step: int | None = None
    staleness: int = 0
    max_staleness: int = 0
    tally: Tally = field(default_factory=Tally)
    times: Mapping[str, float] = field(default_factory=dict)
    whole_at: float | None = None
    held_seconds: float = 0.0

    @property
    def outcomes(self) -> Counter[str]:
        """Its pushes by outcome."""
        return self.tally.outcomes

    def hold(self, batch: int, step: int) -> None:
        """Notes that it was released the parameters of that step, for a number that it leases, perhaps once more."""
        self.batch = batch
        self.base_steps = [*self.base_steps[-KEPT_STEPS:], step]
        self.waiting = False

    def answer(self, step: int, release: Release | None = None, done: Done | None = None) -> Answer:
        """The answer to it from that step, with whatever outcome it is owed: that is not owed any more."""
        result, self.owed = self.owed, None
        return Answer(self.worker, self.incarnation, step, result, release, done)

    def run_out(self) -> None:
        """Notes that its own data is used up; it holds no number any more."""
        self.batch, self.base_steps, self.sending = None, [], None
        self.promised, self.waiting, self.out_of_data = 0, False, True

    def let_go(self, now: float) -> None:
        """Notes that it is released to go on."""
        if self.whole_at is not None and self.outcomes.total() > 1:
            self.held_seconds += now - self.whole_at
        self.whole_at = None

    def may_push(self, push: Push) -> bool:
        """Whether that is a gradient which it was to compute.

        It may have computed it while its push before was exchanged: with the parameters of the release before. Rounds
        find that such a push is late.
        """
        return push.batch == self.batch and push.base_step in (*self.base_steps, *self.previous_steps)

    def decide(self, result: Result) -> None:
        """Records what became of its next push; the answer is owed, and then new parameters."""
        self.sequence = result.sequence
        self.last = self.owed = result
        self.pending = 0
        self.sending = None
        self.batch = None
        self.previous_steps, self.base_steps = self.base_steps, []
        self.waiting = not self.out_of_data
        self.tally.add(result)
        if result.outcome == "APPLIED":
            self.progress = (self.progress or 0) + 1
            self.staleness = result.staleness
            self.max_staleness = max(self.max_staleness, result.staleness)


@dataclass(slots=True)
class _Asker:
    """A newcomer that waits for a held index: when it asked first and last."""

    since: float
    last: float


class Membership:
    """The live members by index.

    A newcomer for a held index waits until the holder's lease ends and is refused as soon as the holder beats.
    Not guarded: used by the lead's event loop alone.

    Attributes:
        lost: members that have gone and whose indices are free, for people.
    """

    def __init__(self, lease: float) -> None:
        self.lease = lease
        self._members: dict[int, Member] = {}
        self._askers: dict[int, _Asker] = {}
        self.lost: dict[int, str] = {}
        self._incarnations = 0
        self._gone = Tally()

    def __len__(self) -> int:
        return len(self._members)

    def __iter__(self) -> Iterator[Member]:
        """Members in order of their indices."""
        return iter(tuple(self._members.values()))

    def get(self, worker: int, incarnation: int) -> Member | None:
        """The member of that life, if it is live."""
        member = self._members.get(worker)
        return member if member and member.incarnation == incarnation else None

    def at(self, worker: int) -> Member | None:
        """Whoever holds that index."""
        return self._members.get(worker)

    def of_nonce(self, nonce: int) -> Member | None:
        """The member that joined with that nonce."""
        return next((member for member in self if member.nonce == nonce), None)

    def admit(self, nonce: int, index: int | None, name: str, places: int, now: float) -> Member | None:
        """Gives the caller a place and a new incarnation; None means that it has to wait for a lease to end.

        Raises:
            Refusal: MISMATCH for an index beyond the places, FENCED for one whose holder lives, FULL without a free
                place.
        """
        if index is None:
            index = next((free for free in range(places) if free not in self._members), None)
            if index is None:
                raise Refusal("FULL", f"all {places} places of the job are taken")
        elif index >= places:
            raise Refusal("MISMATCH", f"index {index}: the job has the places 0 to {places - 1}")
        holder = self._members.get(index)
        if holder is not None:
            self._wait_for(holder, nonce, now)
            return None
        self._askers.pop(nonce, None)
        self.lost.pop(index, None)
        self._incarnations += 1
        member = Member(worker=index, incarnation=self._incarnations, nonce=nonce, name=name, last_beat=now)
        self._members[index] = member
        self._members = dict(sorted(self._members.items()))
        return member

    def _wait_for(self, holder: Member, nonce: int, now: float) -> None:
        if len(self._askers) >= MAX_ASKERS and nonce not in self._askers:
            raise Refusal("FULL", f"{MAX_ASKERS} newcomers wait for indices that are held; try again")
        asker = self._askers.setdefault(nonce, _Asker(now, now))
        asker.last = now
        if holder.last_beat > asker.since:
            del self._askers[nonce]
            raise Refusal("FENCED", f"index {holder.worker} is held by {holder.name}")

    def beat(self, worker: int, incarnation: int, now: float) -> Member:
        """Keeps a member's lease.

        Raises:
            Refusal: FENCED, where the caller is no member any more.
        """
        member = self.get(worker, incarnation)
        if member is None:
            holder = self.at(worker)
            held = f"; {holder.name} has its index" if holder else ""
            raise Refusal("FENCED", f"worker {worker} is no member any more: its lease ended{held}")
        member.last_beat = now
        return member

    def remove(self, member: Member) -> None:
        """Frees the member's index; until somebody takes it, it is known as lost."""
        del self._members[member.worker]
        self._gone += member.tally
        self.lost[member.worker] = f"worker {member.worker} ({member.name})"

    @property
    def tally(self) -> Tally:
        """The pushes of all, also of those that have gone."""
        return sum((member.tally for member in self), self._gone)

    def expired(self, now: float) -> list[Member]:
        """Members whose lease has ended. Whoever has not asked for an index for so long does not wait any more."""
        self._askers = {nonce: asker for nonce, asker in self._askers.items() if now - asker.last <= self.lease}
        return [member for member in self if now - member.last_beat > self.lease]
