"""Shard 0's part that decides: the real `Job`, and a model of how `coordinator.py` feeds it.

Mirrored: every decision is followed by handing its entries to shard 0 in the same call and to every follower's link;
a link that is made again continues behind the position that its shard states, if that is of this generation; calls of
another generation are refused; `recovery_model.py` has how one generation follows another.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

from simulation.events import Life
from simulation.messages import Whole, square
from simulation.recovery_model import Recovery
from simulation.stream import FollowerLink

from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.joining import JoinReply, JoinRequest
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.saving import SavedPart
from grpc_ps.psserver.lead.settings import Value
from grpc_ps.psserver.lead.steering import Change

if TYPE_CHECKING:
    from simulation.invariants import Checker
    from simulation.world import World

T = TypeVar("T")
TICK = 0.1
ENTRIES_PER_MESSAGE = 64


class Lead:
    """Feeds the job with events and the shards with what follows. One for each process of shard 0.

    Attributes:
        life: the process's; `generation` and `job` are the present ones.
        links: the followers' links that are up, by shard: more than one where the end of an old one is not known yet.
        stopped: somebody has ended the job.
        lost_at: when the last link of a shard broke that has none.
    """

    job: Job
    generation: int
    checker: Checker

    def __init__(self, world: World) -> None:
        self.world = world
        self.life = Life()
        self.links: dict[int, list[FollowerLink]] = {}
        self.lost_at: dict[int, float] = {}
        self.recovery = Recovery(self)
        self.stopped = False
        self._delivered = 0
        self._agenda = world.agenda
        self._norms = bool(world.scenario.settings.get("clip_norm") or world.scenario.settings.get("global_clip_norm"))

    def begin(self, job: Job, checker: Checker) -> None:
        """Begins a generation."""
        self.generation = self.world.begin_generation(checker)
        self.job, self.checker = job, checker
        self._delivered = 0
        self.lost_at.clear()
        self.world.shards[0].begin(self.generation, checker)

    def settings(self) -> dict[str, Value]:
        """The job's settings now."""
        return dict(self.job.definition.settings) if self.job.definition else {}

    def flush(self) -> None:
        """Hands out the entries that the last decision wrote, and does what else follows from it."""
        job = self.job
        log = job.log
        while self._delivered != log.position and not job.fallen:
            entries = list(log.after(self._delivered))
            self._delivered = log.position
            if job.shards.count == 1:
                log.trim(log.position)
            self.checker.written(entries)
            shard = self.world.shards[0]
            for position, entry in entries:
                shard.deliver(position, entry)
            for links in self.links.values():
                for link in links:
                    self._feed(link)
        saving = job.saving
        if saving is not None and (saving.current is not None or job.fallen):
            self.recovery.look(job, saving)

    def _feed(self, link: FollowerLink) -> None:
        if link.position >= self.job.log.position:
            return
        entries = list(self.job.log.after(link.position))
        link.position = self.job.log.position
        for start in range(0, len(entries), ENTRIES_PER_MESSAGE):
            link.down.send(link.shard.uplink.entries, link, entries[start : start + ENTRIES_PER_MESSAGE])

    def tick(self) -> None:
        """Lets time pass for the decisions."""
        self.job.tick(self._agenda.now)
        self.flush()
        self.checker.ticked(self._agenda.now)
        if self.world.going():
            self._agenda.enter(self._agenda.now + TICK, self.life, self.tick)

    def begun(self, push: Push) -> None:
        """A push has begun to arrive on shard 0."""
        training = self.job.training
        if training is not None and training.rounds.judges_steps:
            self.job.begun(push, self._agenda.now)
            self.flush()

    def whole(self, shard: int, report: Whole) -> None:
        """A shard holds its part of a push."""
        push = report.header.push
        squares = square(shard, (push.id,)) if self._norms and not push.values else ()
        self.job.whole(shard, push, report.non_finite, self._agenda.now, squares)
        self.flush()

    def reduced(self, shard: int, position: int, squares: tuple[tuple[int, float], ...]) -> None:
        """A shard has made a mean."""
        self.job.reduced(shard, position, squares, self._agenda.now)
        self.flush()

    def overflow(self, shard: int, parameter: str, step: int) -> None:
        """An update went wrong on some shard."""
        self.job.overflow(parameter, step, self._agenda.now)
        self.flush()

    def saved(self, shard: int, part: SavedPart) -> None:
        """A shard has written its part of a checkpoint, or could not."""
        self.recovery.reported(part)
        self.job.durability.saved(shard, part, self._agenda.now)
        self.flush()

    def leaving(self, shard: int) -> None:
        """A shard was told to end."""
        self.job.attendance.leaving(shard, self._agenda.now)
        self.flush()

    def ask(self, worker: int, incarnation: int, sequence: int, out_of_data: bool) -> None:
        """A worker asks what to do next."""
        if out_of_data:
            self.checker.out_of_data(incarnation)
        self.job.ask(worker, incarnation, sequence, self._agenda.now, out_of_data=out_of_data)
        self.flush()

    def hello(self, link: FollowerLink, boot: int, generation: int, position: int) -> None:
        """A follower's link is up."""
        shard = link.shard.number
        try:
            self.job.attendance.follow(shard, self.job.shards.count, boot, f"shard-{shard}", self._agenda.now)
        except Refusal:
            self.flush()
            link.down.send(link.shard.uplink.link_ended, link)
            return
        self.flush()
        position = position if generation == self.generation else 0
        if self.job.done is not None and not position:
            position = self.job.log.position  # who comes after the end has missed nothing
        if position + 1 < self.job.log.first:
            return  # it is older than what the shard acknowledged since over a newer link
        link.position = position
        self.links.setdefault(shard, []).append(link)
        self.lost_at.pop(shard, None)
        link.down.send(link.shard.uplink.welcome, link, self.generation, position)
        self._feed(link)

    def link_lost(self, link: FollowerLink) -> None:
        """A follower's link broke; if it has another one, that goes on."""
        shard = link.shard.number
        links = self.links.get(shard, [])
        if link not in links:
            return
        links.remove(link)
        if not links:
            self.lost_at[shard] = self._agenda.now
            self.job.shards.disconnect(shard, link.shard.boot, self._agenda.now)

    def acknowledge(self, shard: int, position: int) -> None:
        """A follower has taken the log up to there."""
        everywhere = self.job.shards.acknowledge(shard, position)
        if self.job.opened:  # before, a shard may restart, and then needs all of it
            self.job.log.trim(everywhere)

    def join(self, request: JoinRequest) -> tuple[JoinReply | Refusal, int]:
        """A worker wants to take part; it is told of which generation it is then."""
        return self._refusable(lambda: self.job.join(request, self._agenda.now)), self.generation

    def beat(self, generation: int, worker: int, incarnation: int) -> Done | Refusal | None:
        """A worker lives; it is told how the job has ended."""
        if not self._is_present(generation):
            return Refusal("ROLLED_BACK", "join again")
        beaten = self._refusable(lambda: self.job.beat(worker, incarnation, self._agenda.now))
        return beaten if isinstance(beaten, Refusal) else self.job.done

    def _is_present(self, generation: int) -> bool:
        return generation == self.generation and not self.recovery.under_way

    def leave(self, generation: int, worker: int, incarnation: int) -> None:
        """A worker goes."""
        if self._is_present(generation):
            self.job.leave(worker, incarnation, self._agenda.now)
            self.flush()

    def report(self, generation: int, worker: int, incarnation: int, step: int, accuracy: float) -> Refusal | None:
        """A worker has evaluated."""
        if not self._is_present(generation):
            return Refusal("ROLLED_BACK", "join again")
        metrics = {"accuracy": accuracy}
        self.checker.best = max(self.checker.best, accuracy)
        return self._refusable(lambda: self.job.report(worker, incarnation, step, metrics, self._agenda.now))

    def change(self, change: Change) -> Refusal | None:
        """Somebody steers."""

        def decide() -> None:
            self.job.change(change, self._agenda.now)
            self.checker.changed(change)

        return self._refusable(decide)

    def pin(self, snapshot: int) -> Refusal | None:
        """A reader wants values."""
        return self._refusable(lambda: self.job.pins.add(snapshot, self._agenda.now))

    def unpin(self, snapshot: int) -> None:
        """A reader is done."""
        for shard in range(self.job.shards.count):
            self.job.pins.drop(shard, snapshot)

    def save(self) -> Refusal | None:
        """Somebody wants a checkpoint."""
        refused = self._refusable(lambda: self.job.durability.save(self._agenda.now))
        return refused if isinstance(refused, Refusal) else None

    def stop(self, done: Done) -> None:
        """Somebody ends the job."""
        self.world.stop_asked = self.stopped = True
        self.recovery.asked = done
        self.job.stop(done, self._agenda.now)
        self.flush()

    def _refusable(self, decide: Callable[[], T]) -> T | Refusal:
        try:
            return decide()
        except Refusal as refusal:
            return refusal
        finally:
            self.flush()
