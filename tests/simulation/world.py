"""One simulated job from a seed: processes, links and time around the real decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any, TypeVar

from simulation.chaos import Chaos
from simulation.disk import Disk
from simulation.endings import demand_clean, patience
from simulation.events import Agenda
from simulation.invariants import Checker
from simulation.lead_model import Lead
from simulation.messages import WireAnswer
from simulation.report import report
from simulation.scenario import LIMITS, Scenario, scenario
from simulation.shard_model import Shard
from simulation.violation import Violation
from simulation.worker_model import Worker

from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.log import Answer
from grpc_ps.psserver.lead.steering import Change

T = TypeVar("T")
LINGER = 3.0
"""Seconds that pass after the last worker has gone, for what is still on its way."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a seed."""

    seed: int
    events: int
    steps: int
    seen: Counter[str]


class World:
    """Everything of one seed.

    Attributes:
        seen: how often each kind of thing happened.
        checkers: the books by generation; `checker` is the newest.
        stop_asked, overflowed: what may end the job early: a person, an infinite result.
        signalled: a shard was told to end.
        hopeless: a shard is lost for good, so that workers may give up.
        calm: faults have stopped, and what they broke is mended.
        processes: all worker processes there ever were.
    """

    def __init__(self, seed: int, job_class: Callable[..., Job] = Job) -> None:
        self.scenario: Scenario = scenario(seed)
        self.limits = replace(LIMITS, save=self.scenario.save_limit)
        self.random = Random(seed ^ 0x5EED)
        self.draw = self.random.random
        self.agenda = Agenda()
        self.calm = False
        self.cut_chance = self.scenario.cut_chance
        self.nan_chance = self.scenario.nan_chance
        self.disk_chance = self.scenario.disk_chance
        self.overflow_armed = self.rebooted = self.hopeless = False
        self.overflowed = self.stop_asked = self.signalled = False
        self.processes: list[Worker] = []
        self._answers: dict[int, WireAnswer] = {}
        self._finished_at: float | None = None
        self._boots = self._nonces = 0
        self._disturbed_at = 0.0
        self.seen: Counter[str] = Counter()
        self.disk = Disk()
        self.job_class = job_class
        self.generation = 0
        self.checkers: dict[int, Checker] = {}
        self.checker = Checker(self, cold=True)
        self.patience = patience(self)
        self.shards = [self._new_shard(number) for number in range(self.scenario.shards)]
        self.chaos = Chaos(self)
        self.lead = Lead(self)
        self.lead.recovery.begin(cold=True)

    def _new_shard(self, number: int) -> Shard:
        self._boots += 1
        return Shard(self, number, self._boots)

    def new_nonce(self) -> int:
        """A number that nobody has joined with."""
        self._nonces += 1
        return self._nonces

    def begin_generation(self, checker: Checker) -> int:
        """A generation begins, with books of its own."""
        self.generation += 1
        self.checkers[self.generation] = self.checker = checker
        return self.generation

    @property
    def calm_since(self) -> float:
        """When the last fault was, or will be."""
        return max(self.scenario.calm_at, self._disturbed_at)

    def run(self) -> Outcome:
        """Simulates the seed to its end; raises Violation."""
        agenda = self.agenda
        for shard in self.shards[1:]:
            agenda.after(self.draw(), shard.uplink.connect)
        for _ in range(int(self.scenario.settings["workers"]) + self.scenario.spare):
            agenda.after(self.draw() * 0.5, self.spawn, None)
        self.lead.tick()
        self.chaos.start()
        try:
            agenda.run(self.going)
        except Violation:
            raise
        except Exception as error:
            raise Violation("crash", f"{type(error).__name__}: {error}") from error
        demand_clean(self)
        return Outcome(seed=self.scenario.seed, events=agenda.events, steps=self.checker.step, seen=self.seen)

    def going(self) -> bool:
        """Whether there is anything left to see."""
        if self.lead.life.cut or not self.lead.job.finished():
            self._finished_at = None
            return True
        if self._finished_at is None:
            self._finished_at = self.agenda.now
        return self.agenda.now < self._finished_at + LINGER

    def spawn(self, index: int | None) -> None:
        """Starts a worker process."""
        if self.lead.job.done is not None:
            return
        share = self.scenario.share
        batches = share[len(self.processes) % len(share)] if share is not None else None
        worker = Worker(self, self.new_nonce(), index, batches)
        self.processes.append(worker)
        worker.lease.join()

    def process_ended(self, worker: Worker) -> None:
        """A worker process has ended; a fenced one joins again."""
        if worker.why == "fenced" and self.scenario.rejoins and (self.calm or self.draw() < 0.7):
            self.agenda.after(0.1 + self.draw(), self.spawn, worker.worker if self.draw() < 0.3 else None)

    def calm_down(self) -> None:
        """No more faults; what is missing is started."""
        self.calm = True
        self.cut_chance = self.nan_chance = self.disk_chance = 0.0
        self._revive()

    def _revive(self) -> None:
        """Starts workers while too few run, and ends a pause; a generation may begin with one."""
        if not self.going():
            return
        if not self.lead.life.cut and self.lead.job.done is None:
            if self.checker.rounds.paused or not self.checker.opened:
                self.lead.change(Change(paused=False))
            live = sum(not worker.ended for worker in self.processes)
            if live < self.checker.rounds.workers and self.scenario.rejoins:
                self.spawn(None)
        self.agenda.after(1.0, self._revive)

    def crash(self, number: int) -> None:
        """A shard's process dies, and is started anew, empty."""
        shard = self.shards[number]
        if shard.life.cut or self.lead.job.finished():
            return
        shard.die()
        if number == 0:
            self.lead.life.cut = True
        for other in self.shards if number == 0 else [shard]:
            link = other.uplink.link
            if link is not None:
                link.up.cut = True
                link.break_()
        shard.uplink.link = None
        pause = 0.1 + 1.5 * self.draw()
        self._disturbed_at = self.agenda.now + pause
        self.agenda.after(pause, self._restart, number)

    def _restart(self, number: int) -> None:
        away_until = self.shards[number].uplink.away_until
        self.shards[number] = shard = self._new_shard(number)
        shard.uplink.away_until = away_until  # the machine is, not the process
        if number:
            shard.uplink.connect()
            return
        self.lead = Lead(self)
        self.lead.recovery.begin(cold=True)
        self.lead.tick()

    def demand_over(self, generation: int) -> None:
        """A worker is told that its generation is over."""
        lead = self.lead
        if generation == lead.generation and not lead.recovery.under_way and not lead.life.cut:
            raise Violation("refused", f"generation {generation} is said to be over, and goes on")

    def demand_hopeless(self, what: str) -> None:
        """What happens only where a shard's state is lost for good."""
        if self.scenario.plan is not None:
            raise Violation("refused", what)

    def disk_time(self) -> float:
        """When something on the disk is done that begins now."""
        return self.agenda.now + self.draw() * self.scenario.disk

    def disk_fails(self) -> bool:
        """Whether something cannot be written: rarely at first, for that is the end."""
        chance = self.disk_chance if self.disk.checkpoints else 0.1 * self.disk_chance
        return bool(chance) and self.draw() < chance

    def call(
        self, worker: Worker, action: Callable[..., Any], args: tuple[Any, ...], then: Callable[[Any], None] | None
    ) -> None:
        """A call to the lead: it arrives after a delay, or not, and so does its reply."""
        delay = self.scenario.delay
        if self.cut_off(worker) or (not self.calm and self.draw() < 0.01):
            if self.draw() < 0.5:
                self.agenda.after(self.draw() * delay, self._serve, action, args, None)
            if then is not None:
                self.agenda.after(1.0, then, None)
            return
        self.agenda.after(self.draw() * delay, self._serve, action, args, then)

    def _serve(self, action: Callable[..., Any], args: tuple[Any, ...], then: Callable[[Any], None] | None) -> None:
        if action.__self__.life.cut:  # type: ignore[attr-defined]
            if then is not None:
                self.agenda.after(0.5, then, None)
            return
        reply = action(*args)
        if then is not None:
            self.agenda.after(self.draw() * self.scenario.delay, then, reply)

    def cut_off(self, worker: Worker) -> bool:
        """Whether the worker's network is gone."""
        return self.agenda.now < worker.cut_off_until

    def cut_somebody(self, shard: Shard) -> None:
        """An update was made: perhaps a link breaks just now."""
        if self.cut_chance and shard.door.sessions and self.draw() < self.cut_chance:
            self.seen["cut when applied"] += 1
            self.choose(list(shard.door.sessions.values())).break_()

    def overflows(self, shard: int, step: int) -> bool:
        """Whether that update's result is infinite on that shard."""
        if not self.overflow_armed or self.draw() < 0.3:
            return False
        self.overflow_armed = False
        self.overflowed = True
        return True

    def compute_time(self, worker: Worker) -> float:
        """Seconds of a step."""
        slow = self.scenario.slow if worker.nonce % 4 == 2 else 1.0
        return self.scenario.compute * (0.5 + self.draw()) * slow

    def wire_answer(self, entry: Answer, position: int) -> WireAnswer:
        """The message of an answer, one for all shards."""
        answer = self._answers.get(position)
        if answer is None or answer.entry is not entry:
            answer = self._answers[position] = WireAnswer(entry, position)
        return answer

    def choose(self, among: Sequence[T]) -> T:
        """One of them."""
        return among[int(self.draw() * len(among))]

    def describe(self) -> str:
        """Who waits for what, for the report of a failure."""
        job = self.lead.job
        lives = [
            f"{it.worker}/{it.incarnation} {it.state} since {it.since:.2f}" for it in self.processes if not it.ended
        ]
        members = [f"{it}" for it in job.members]
        return (
            f"at {self.agenda.now:.2f} step {job.step}, phase {job.phase}, waits for {job.waiting_for()!r}; "
            f"processes: {'; '.join(lives)}; members: {'; '.join(members)}"
        )


def simulate(seed: int, after: Callable[[World], None] = lambda world: None) -> Outcome:
    """Runs a seed, then does something with what is left.

    Raises:
        Violation: with the line that reproduces it, and the last events.
    """
    world = World(seed)
    try:
        outcome = world.run()
    except Violation as violation:
        raise Violation(violation.kind, f"{violation.detail}\n{report(world)}") from violation
    after(world)
    return outcome
