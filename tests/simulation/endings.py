"""How a job may end, and what must be left when it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.messages import IMAGE_BYTES
from simulation.violation import Violation

from grpc_ps.psserver.lead.log import Done

if TYPE_CHECKING:
    from simulation.invariants import Checker
    from simulation.world import World


def demand_right_end(checker: Checker, done: Done) -> None:
    """The job has ended: with the exit code that it should."""
    if done.exit_code == 4:
        _demand_lost(checker, done)
    elif done.exit_code == 5 and not checker.overflowed:
        raise Violation("exit-code", f"{done} without an overflow")
    elif done.exit_code == 0:
        _demand_done(checker, done)
    elif done.exit_code not in (0, 4, 5):
        raise Violation("exit-code", f"{done}")


def _demand_lost(checker: Checker, done: Done) -> None:
    """Somebody who is needed was waited for, for as long as is allowed."""
    world, rounds, reason = checker.world, checker.rounds, done.reason
    now, limits = world.agenda.now, world.limits
    if "not started" in reason:
        right = now > limits.start
    elif "gone for" in reason:
        right = now - min(world.lead.lost_at.values()) >= limits.link
    elif "lost its state" in reason:
        right = world.rebooted
    else:
        # While there are faults a member may be one that never asked for work, or that cannot reach every shard.
        scenario = world.scenario
        faulty = scenario.faults or scenario.cut_chance or scenario.fatal
        faults = faulty and now < scenario.calm_at + limits.link + limits.lease + limits.rejoin
        missing = faults or world.hopeless or len(rounds.members) < rounds.workers
        right = missing and rounds.lacking_for(now) >= limits.rejoin
    if not right:
        here = f"{len(rounds.members)} members, N is {rounds.workers}"
        raise Violation("exit-code", f"{done} at {now:.2f}: lacking for {rounds.lacking_for(now):.2f}, {here}")


def _demand_done(checker: Checker, done: Done) -> None:
    """The target is reached, the data is used up, or somebody said so."""
    target = int(checker.settings["steps"])
    if "out of data" in done.reason:
        if not checker.rounds.all_out():
            raise Violation("exit-code", f"{done}, and of {checker.rounds.members} some have data")
    elif "accuracy" in done.reason:
        if checker.best < 0.9:
            raise Violation("exit-code", f"{done}, and the best was {checker.best}")
    elif not checker.stop_asked and not (target and checker.step == target):
        if checker.numbers.end is None:
            raise Violation("exit-code", f"{done} at step {checker.step} of {target}")
        checker.numbers.demand_all_used()


def demand_end_in_time(checker: Checker) -> None:
    """The job ends as soon as it is done."""
    target = int(checker.settings["steps"])
    if target and checker.step >= target:
        raise Violation("no-end", f"step {checker.step} of {target} is reached, and the job goes on")
    if checker.numbers.end is not None and checker.numbers.left(None) <= 0:
        raise Violation("no-end", "every number is used, and the job goes on")


def demand_no_waiter(world: World) -> None:
    """After the faults have stopped: nobody who could go on waits for longer than a round may take."""
    scenario, limits, checker = world.scenario, world.limits, world.checker
    slowest = 1.5 * scenario.compute * scenario.slow + 60 * scenario.delay + 5 * scenario.kernel
    bound = 3 * slowest + 2 * limits.rejoin + 2 * limits.lease + limits.link + limits.start
    now = world.agenda.now
    if now < scenario.calm_at + bound or checker.numbers.none_left() or not checker.rounds.all_have_places():
        return
    for worker in world.processes:
        waits = worker.state == "waiting" and not worker.out
        if waits and now - max(worker.since, scenario.calm_at) > bound:
            raise Violation("starved", f"worker {worker.worker} waits since {worker.since:.2f}: {world.describe()}")


def demand_end(world: World) -> None:
    """The time in which every job ends is over; only where nobody is left somebody has to stop it."""
    checker = world.checker
    waits_for_nobody = not checker.opened or not checker.rounds.sync
    if waits_for_nobody and not world.scenario.rejoins and all(it.ended for it in world.processes):
        checker.seen["deserted"] += 1
        world.lead.stop(Done())
        return
    raise Violation("stuck", world.describe())


def demand_clean(world: World) -> None:
    """Everybody has gone: all knew how it ended, every push has one outcome, and no memory is left."""
    stopped = world.checker.stopped
    assert stopped is not None
    for shard in world.shards:
        if shard.position == world.lead.job.log.position:
            left = shard.staging.bytes() // IMAGE_BYTES - len(shard.kept)
            if left > 0:
                raise Violation("staging", f"shard {shard.number} stages {left} parts for nobody")
    for worker in world.processes:
        if worker.why == "done" and worker.code != stopped.exit_code:
            raise Violation("exit-code", f"worker {worker.worker} ends with {worker.code}: {stopped}")
        mended = worker.recovering is not None and worker.recovering > world.scenario.calm_at + 2 * world.limits.lease
        if worker.why == "lost" and mended and not world.hopeless and worker.since < world.checker.stopped_at:
            raise Violation("exit-code", f"worker {worker.worker} gave up, though every link was mended in time")
        told = sum(worker.outcomes.values())
        if worker.sequence != told + (worker.push is not None):
            raise Violation("outcome", f"worker {worker.worker} sent {worker.sequence} pushes: {worker.outcomes}")
