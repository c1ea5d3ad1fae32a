"""One simulated job from a seed: processes, links and time around the real decisions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from simulation.chaos import Chaos
from simulation.endings import demand_clean
from simulation.events import Agenda
from simulation.invariants import Checker
from simulation.lead_model import Lead
from simulation.messages import WireAnswer
from simulation.scenario import LIMITS, Scenario, scenario
from simulation.shard_model import Shard
from simulation.violation import Violation
from simulation.worker_model import Worker

from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.log import Answer
from grpc_ps.psserver.lead.steering import Change

T = TypeVar("T")
RUN = 7
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
        hopeless: a shard is lost for good, so that workers may give up.
        calm: faults have stopped, and what they broke is mended.
        processes: all worker processes there ever were.
    """

    def __init__(self, seed: int, job_class: Callable[..., Job] = Job) -> None:
        self.scenario: Scenario = scenario(seed)
        self.limits = LIMITS
        self.random = Random(seed ^ 0x5EED)
        self.draw = self.random.random
        self.agenda = Agenda()
        self.calm = False
        self.cut_chance = self.scenario.cut_chance
        self.nan_chance = self.scenario.nan_chance
        self.overflow_armed = self.rebooted = self.hopeless = False
        self.processes: list[Worker] = []
        self._answers: dict[int, WireAnswer] = {}
        self._finished_at: float | None = None
        self._boots = 0
        self.checker = Checker(self)
        self.checker.patience = self._patience()
        self.shards = [self._new_shard(number) for number in range(self.scenario.shards)]
        job = job_class(run=RUN, shard_count=len(self.shards), presets=self.scenario.settings, limits=self.limits)
        self.lead = Lead(self, job)
        self.chaos = Chaos(self)

    def _new_shard(self, number: int) -> Shard:
        self._boots += 1
        return Shard(self, number, self._boots)

    def _patience(self) -> float:
        """Within so many seconds after calm the job ends: every step is slow, and every limit is waited for once."""
        limits, scenario = self.limits, self.scenario
        settings = self.checker.settings
        steps = int(settings["steps"]) or self.checker.numbers.end or 8 * 40
        slowest = 1.5 * scenario.compute * scenario.slow + 60 * scenario.delay + 5 * scenario.kernel
        waits = 4 * limits.lease + limits.link + limits.start + 3 * limits.rejoin + 30.0
        return waits + steps * (slowest + (limits.rejoin + 0.2 if not scenario.rejoins else 0.0))

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
        return Outcome(seed=self.scenario.seed, events=agenda.events, steps=self.checker.step, seen=self.checker.seen)

    def going(self) -> bool:
        """Whether there is anything left to see."""
        if not self.lead.job.finished():
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
        worker = Worker(self, len(self.processes) + 1, index, batches)
        self.processes.append(worker)
        worker.lease.join()

    def process_ended(self, worker: Worker) -> None:
        """A worker process has ended; a fenced one joins again."""
        if worker.why == "fenced" and self.scenario.rejoins and (self.calm or self.draw() < 0.7):
            self.agenda.after(0.1 + self.draw(), self.spawn, worker.worker if self.draw() < 0.3 else None)

    def calm_down(self) -> None:
        """No more faults; what is missing is started."""
        self.calm = True
        self.cut_chance = self.nan_chance = 0.0
        self.lead.change(Change(paused=False))
        self._revive()

    def _revive(self) -> None:
        """Starts workers while too few run."""
        if self.lead.job.done is not None or not self.scenario.rejoins:
            return
        live = sum(not worker.ended for worker in self.processes)
        if live < self.checker.rounds.workers:
            self.spawn(None)
        self.agenda.after(1.0, self._revive)

    def reboot(self, shard: Shard) -> None:
        """A follower's process dies and is started anew, empty."""
        self.rebooted = self.hopeless = True
        shard.uplink.dead = True
        if shard.uplink.link is not None:
            shard.uplink.link.break_()
        fresh = self._new_shard(shard.number)
        for worker in self.processes:
            for stream in worker.streams:
                if stream.shard is shard:
                    stream.break_()
        self.shards[shard.number] = fresh
        self.agenda.after(1.0, fresh.uplink.connect)

    def call(
        self, worker: Worker, action: Callable[..., Any], args: tuple[Any, ...], then: Callable[[Any], None] | None
    ) -> None:
        """A call to the lead: it arrives after a delay, or not, and so does its reply."""
        delay = self.scenario.delay
        if self.cut_off(worker) or (not self.calm and self.draw() < 0.01):
            if self.draw() < 0.5:
                self.agenda.after(self.draw() * delay, action, *args)
            if then is not None:
                self.agenda.after(1.0, then, None)
            return
        self.agenda.after(self.draw() * delay, self._serve, action, args, then)

    def _serve(self, action: Callable[..., Any], args: tuple[Any, ...], then: Callable[[Any], None] | None) -> None:
        reply = action(*args)
        if then is not None:
            self.agenda.after(self.draw() * self.scenario.delay, then, reply)

    def cut_off(self, worker: Worker) -> bool:
        """Whether the worker's network is gone."""
        return self.agenda.now < worker.cut_off_until

    def cut_somebody(self, shard: Shard) -> None:
        """An update was made: perhaps a link breaks just now."""
        if self.cut_chance and shard.sessions and self.draw() < self.cut_chance:
            self.checker.seen["cut when applied"] += 1
            self.choose(list(shard.sessions.values())).break_()

    def overflows(self, shard: int, step: int) -> bool:
        """Whether that update's result is infinite on that shard."""
        if not self.overflow_armed or self.draw() < 0.3:
            return False
        self.overflow_armed = False
        self.checker.overflowed = True
        return True

    def compute_time(self, worker: Worker) -> float:
        """Seconds of a step."""
        slow = self.scenario.slow if worker.nonce % 4 == 2 else 1.0
        return self.scenario.compute * (0.5 + self.draw()) * slow

    def wire_answer(self, entry: Answer, position: int) -> WireAnswer:
        """The message of an answer, one for all shards."""
        answer = self._answers.get(position)
        if answer is None:
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


def simulate(seed: int) -> Outcome:
    """Runs a seed.

    Raises:
        Violation: with the line that reproduces it, and the last events.
    """
    world = World(seed)
    try:
        return world.run()
    except Violation as violation:
        raise Violation(violation.kind, f"{violation.detail}\n{report(world)}") from violation


def report(world: World) -> str:
    """How to see a failure again, and what happened last."""
    lines = [f"    {when:10.4f} {_name(action, args)}" for when, _, _, action, args in world.agenda.trace]
    again = f"python -m simulation.run --seed {world.scenario.seed}    (in tests/)"
    return "\n".join([again, f"{world.scenario}", *lines])


def _name(action: Any, args: tuple[Any, ...]) -> str:
    owner = getattr(action, "__self__", None)
    who = f"{type(owner).__name__} {getattr(owner, 'number', getattr(owner, 'incarnation', ''))}" if owner else ""
    return f"{who}.{getattr(action, '__name__', action)} {args!r:.160}"
