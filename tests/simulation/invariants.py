"""The rules of one generation, checked as its log is written and as shards and workers act on it.

A generation's books begin with those of the checkpoint that it began from: so what holds for one, holds along the
history that leads to the end of the job. What belongs to another generation is in no book, and unknown here.

All of it is the simulator's own bookkeeping, made of the entries of the log and of what shards and workers do: it never
looks into the lead's memory. `README.md` in this folder lists the kinds of violations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.endings import demand_end, demand_end_in_time, demand_no_waiter, demand_right_end
from simulation.messages import IMAGE_BYTES, Header
from simulation.numbers import Numbers
from simulation.push_book import PushBook
from simulation.restart_reference import Beginning, RestartReference
from simulation.rounds_reference import RoundsReference
from simulation.update_reference import UpdateReference
from simulation.violation import Violation

from grpc_ps.client.answers import Reply
from grpc_ps.psserver.lead.log import (
    Admit,
    Answer,
    Apply,
    Dismiss,
    Done,
    Entry,
    Open,
    Reduce,
    Release,
    Save,
    Stop,
    Weighted,
)
from grpc_ps.psserver.lead.settings import complete
from grpc_ps.psserver.lead.steering import Change

if TYPE_CHECKING:
    from simulation.shard_model import Shard
    from simulation.worker_model import Worker
    from simulation.world import World

TICKS_PER_LOOK = 10


class Checker:
    """Raises Violation as soon as a rule does not hold.

    Attributes:
        seen: how often each kind of thing happened, so that tests know what was covered.
        began_at: when the generation began.
        exact: its batches are those of an undisturbed run: sync without backup workers, and nothing lost for good.
        opened, step: whether the job began, and the global step.
        stopped, stopped_at: how the job ended, None before, and when.
        best: the best evaluation, which may end it early.
    """

    def __init__(self, world: World, *, cold: bool) -> None:
        self.world = world
        self.began_at = world.agenda.now
        whole = world.disk.whole()
        begin = whole[-1].beginning if whole else None
        self.settings = dict(begin.settings) if begin else complete(world.scenario.settings)
        self.seen = world.seen
        self.numbers = begin.numbers.at_rest() if begin else Numbers(self.settings)
        self.rounds = RoundsReference(self.settings, self.numbers, world.limits.rejoin)
        self.pushes = PushBook(world.scenario.shards, self.numbers, self.seen)
        self.updates = UpdateReference(self.settings, world.scenario.shards)
        self.restart = RestartReference(self, world.disk, durable=world.scenario.plan is not None, cold=cold)
        self.step = 0
        self.opened = False
        self.stopped: Done | None = None
        self.stopped_at = 0.0
        self.best = 0.0
        self.exact = bool(self.rounds.sync and not self.rounds.backup and world.scenario.share is None)
        self._releases: dict[int, tuple[int, set[int]]] = {}
        self._histories: dict[int, int] = {}
        self._reduced: Weighted | None = None
        self._ticks = 0
        if begin is not None:
            self._begin(begin, cold=cold)

    def _begin(self, begin: Beginning, *, cold: bool) -> None:
        self.step, self.exact = begin.step, begin.exact
        self._histories[begin.step] = begin.history
        self.updates.factor, self.rounds.paused = begin.factor, begin.paused
        if not cold:
            self.rounds.could_start, self.rounds.has_started = begin.could_start, begin.has_started

    def beginning(self) -> Beginning:
        """The books of this position, for a generation that begins from it."""
        return Beginning(
            step=self.step,
            history=self._histories[self.step],
            numbers=self.numbers.at_rest(),
            settings=dict(self.settings),
            factor=self.updates.factor,
            paused=self.rounds.paused,
            could_start=self.rounds.could_start,
            has_started=self.rounds.has_started,
            untold=self.pushes.untold() if self.world.scenario.nan_chance else set(),
            exact=self.exact,
            lead_settings=self.world.lead.settings(),
        )

    def written(self, entries: list[tuple[int, Entry]]) -> None:
        """The lead wrote entries in one decision; numbers come back in it before they are handed out."""
        releases: list[Answer] = []
        retired = len(entries) > 1 and self._retire(entries)
        for _, entry in entries:
            kind = type(entry)
            if kind is Answer:
                assert isinstance(entry, Answer)
                if entry.result is not None and not (retired and _retires(entry)):
                    self.pushes.answered(entry, self.step)
                if entry.release is not None:
                    releases.append(entry)
            elif kind is Apply:
                self._apply(entry)  # type: ignore[arg-type]
            else:
                if kind is Stop or kind is Save:
                    self._release_all(releases)
                self._rare(entry)
        self._release_all(releases)
        self.rounds.look(self.world.agenda.now)
        if self.opened and self.stopped is None:
            demand_end_in_time(self)

    def _retire(self, entries: list[tuple[int, Entry]]) -> bool:
        """A refused push lowers what its epoch still has, though its answer may stand behind the round's update."""
        answers = [entry for _, entry in entries if isinstance(entry, Answer) and _retires(entry)]
        for answer in answers:
            self.pushes.answered(answer, self.step)
        return bool(answers)

    def _rare(self, entry: Entry) -> None:
        match entry:
            case Admit(worker, incarnation):
                self.rounds.admit(worker, incarnation)
            case Open(push):
                if self.opened:
                    raise Violation("opened-twice", f"{entry}")
                self.opened = True
                self.restart.demand_begin(entry)
                if push is not None:
                    self.pushes.opened(push)
                    self._histories[0] = hash(push)
            case Save():
                self.seen["save"] += 1
                self.restart.saving(entry)
            case Dismiss(_, incarnation):
                self.pushes.dismiss(entry)
                self.rounds.dismiss(incarnation)
            case Reduce(pushes):
                if self._reduced is not None:
                    raise Violation("reduce", "two rounds are reduced at once")
                self._reduced = pushes
                self._demand_round(pushes)
            case Stop(_, done):
                if self.stopped is not None:
                    raise Violation("after-end", "the job ends twice")
                self.stopped, self.stopped_at = done, self.world.agenda.now
                self.seen[f"exit {done.exit_code}"] += 1
                demand_right_end(self, done)
                if done.exit_code == 0:
                    self.world.chaos.ended()

    def _demand_round(self, pushes: Weighted) -> list[Header]:
        headers = [self.pushes.whole(push) for push, _ in pushes]
        self.rounds.demand_round([header.push for header in headers], pushes, self.step, self.world.agenda.now)
        return headers

    def _apply(self, entry: Apply) -> None:
        if not self.opened or self.stopped is not None or entry.step != self.step + 1:
            raise Violation("step", f"step {entry.step} follows {self.step}, the end is {self.stopped}")
        if self._reduced is None:
            headers = self._demand_round(entry.pushes)
        elif self._reduced == entry.pushes:  # the rules held when the round closed
            headers = [self.pushes.whole(push) for push, _ in entry.pushes]
            self._reduced = None
        else:
            raise Violation("reduce", f"{self._reduced} are reduced and {entry} is applied")
        self.restart.demand_not_stopped()
        self.updates.demand(entry)
        self._demand_undisturbed(headers)
        self.step = entry.step
        self._histories[entry.step] = next_history(self._histories[entry.step - 1], entry)
        for header in headers:
            self.pushes.applied(header, self.step)
            self.rounds.applied(header.key[1])
        self.seen[f"round of {len(headers)}"] += 1

    def _demand_undisturbed(self, headers: list[Header]) -> None:
        """A step has the batches that it has in every run of the job. A round that was settled is a loss for good."""
        if self.exact and not self.numbers.lossy:
            expected, batches = self.numbers.undisturbed(self.rounds.workers), [it.push.batch for it in headers]
            self.exact = len(batches) == len(expected)
            if self.exact and batches != expected:
                raise Violation("sequence", f"step {self.step + 1} has batches {batches}; undisturbed {expected}")

    def _release_all(self, answers: list[Answer]) -> None:
        for answer in answers:
            self._release(answer, answer.release)  # type: ignore[arg-type]
        answers.clear()

    def _release(self, answer: Answer, release: Release) -> None:
        incarnation = answer.incarnation
        if self.stopped is not None:
            raise Violation("after-end", f"work is given after the end: {answer}")
        if answer.step != self.step:
            raise Violation("release", f"parameters of step {answer.step} at step {self.step}")
        self.restart.demand_work()
        again = self.numbers.holders.get(release.batch) == incarnation
        self.rounds.demand_release(answer.worker, incarnation, again=again)
        self.rounds.leased(release.batch)
        self.numbers.lease(release.batch, incarnation, within_epoch=self.rounds.within_epoch)
        if again:
            self._releases[incarnation][1].add(answer.step)
            self.seen["released again"] += 1
        else:
            self._releases[incarnation] = release.batch, {answer.step}

    def staged(self, shard: Shard) -> None:
        """A part begins: staged memory is bounded."""
        most = len(shard.admitted) + len(shard.kept)
        parts = shard.staging.bytes() // IMAGE_BYTES
        if parts > most:
            raise Violation("staging", f"shard {shard.number} stages {parts} parts for {most} places")

    def carried(self, shard: int, step: int, history: int) -> None:
        """A shard has made an update, or begins from a checkpoint: all come to what the log says."""
        if self._histories.get(step) != history:
            raise Violation("different", f"shard {shard} came to step {step} another way")

    def pinned(self, shard: int, snapshot: int, step: int, version: int) -> None:
        """A shard has pinned values: those of one step on all shards."""
        if version != self._histories[step]:
            raise Violation("mixture", f"pin {snapshot} on shard {shard} is not of step {step}")
        self.seen["pinned"] += 1

    def released(self, worker: Worker, reply: Reply) -> None:
        """A worker has a reply that lets it compute: parameters and number of one position."""
        version, versions = self._histories.get(reply.global_step), worker.versions
        if versions.count(version) != len(versions):  # type: ignore[arg-type]
            of = f"parameters {versions} at step {reply.global_step}, which is {version}"
            raise Violation("mixture", f"worker {worker.worker} computes with {of}")
        batch, steps = self._releases.get(worker.incarnation, (-1, set()))
        if batch != reply.batch or reply.global_step not in steps:
            raise Violation("release", f"{reply}: life {worker.incarnation} was given batch {batch} of steps {steps}")

    def fenced(self, incarnation: int) -> None:
        """A worker is told that it is no member any more."""
        if incarnation not in self.pushes.dismissed:
            raise Violation("refused", f"life {incarnation} is fenced and was never dismissed")

    def out_of_data(self, incarnation: int) -> None:
        """A worker says that its own data is used up."""
        if self.rounds.exhaust(incarnation):
            for number in [it for it, holder in self.numbers.holders.items() if holder == incarnation]:
                self.numbers.free(number, incarnation)
        self.rounds.look(self.world.agenda.now)

    def changed(self, change: Change) -> None:
        """The job's rules are others now."""
        self.seen["changed"] += 1
        self.exact = self.exact and not change.rules()
        self.settings.update(change.rules())
        self.rounds.adopt(self.settings, reset=bool(change.rules()))
        if change.learning_rate_factor is not None:
            self.updates.factor = change.learning_rate_factor
        if change.paused is not None:
            self.rounds.paused = change.paused
        self.rounds.look(self.world.agenda.now)

    def ticked(self, now: float) -> None:
        """Time passes: nobody who could go on waits for too long."""
        self.rounds.look(now)
        self._ticks += 1
        if self.stopped is None and self._ticks % TICKS_PER_LOOK == 0 and now >= self.world.calm_since:
            demand_no_waiter(self.world)
            if now >= self.world.calm_since + self.world.patience:
                demand_end(self.world)


def next_history(history: int, entry: Apply) -> int:
    """Names the values after an update by all that has made them."""
    return hash((history, entry.step, entry.pushes, entry.learning_rate, entry.scales))


def _retires(entry: Answer) -> bool:
    result = entry.result
    return result is not None and result.outcome == "NON_FINITE" and not result.repeated
