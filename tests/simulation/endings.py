"""How a job may end, and what must be left when it has."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.messages import IMAGE_BYTES
from simulation.scenario import Scenario
from simulation.violation import Violation

from grpc_ps.psserver.lead.log import Done

if TYPE_CHECKING:
    from simulation.invariants import Checker
    from simulation.world import World


def demand_right_end(checker: Checker, done: Done) -> None:
    """The job has ended: with the exit code that it should."""
    if done.exit_code == 4:
        _demand_lost(checker, done)
    elif done.exit_code == 5 and not checker.world.overflowed:
        raise Violation("exit-code", f"{done} without an overflow")
    elif done.exit_code == 0:
        checker.restart.demand_saved_end()
        _demand_done(checker, done)
    elif done.exit_code == 6:
        _demand_unsaved(checker, done)
    elif done.exit_code not in (0, 4, 5):
        raise Violation("exit-code", f"{done}")


def _demand_unsaved(checker: Checker, done: Done) -> None:
    """The first checkpoint, or the last for as long as it is tried, could not be written."""
    restart, now = checker.restart, checker.world.agenda.now
    restart.expire()
    failing = restart.failing_since is not None
    if "first" in done.reason:
        right = failing and restart.known is None
    else:
        long = failing and now - restart.failing_since >= checker.world.limits.retry  # type: ignore[operator]
        right = long and restart.known != checker.step and _is_over(checker)
    if not right:
        raise Violation("exit-code", f"{done}: {restart.known} is committed, failing since {restart.failing_since}")


def _is_over(checker: Checker) -> bool:
    """Whether the job has come to its end, or was told to."""
    world, target = checker.world, int(checker.settings["steps"])
    over = bool(target and checker.step >= target) or checker.best >= 0.9 or checker.rounds.were_out
    return over or world.stop_asked or (checker.numbers.end is not None and checker.numbers.left(None) <= 0)


def _demand_lost(checker: Checker, done: Done) -> None:
    """Somebody who is needed was waited for, for as long as is allowed."""
    world, rounds, reason = checker.world, checker.rounds, done.reason
    now, limits = world.agenda.now, world.limits
    patience = limits.link if world.scenario.plan is None else limits.recovery
    if "not started" in reason:
        right = now - checker.began_at > limits.start and not rounds.has_started
    elif "gone for" in reason:
        right = now - min(world.lead.lost_at.values()) >= patience
    elif "not gone on" in reason:
        right = now - checker.began_at >= limits.recovery and not checker.opened
    elif "lost its state" in reason:
        right = world.rebooted and world.scenario.plan is None
    elif "by a signal" in reason:
        right = world.signalled and not checker.opened
    else:
        # While there are faults a member may be one that never asked for work, or that cannot reach every shard.
        scenario = world.scenario
        faulty = scenario.faults or scenario.cut_chance or scenario.fatal
        faults = faulty and now < world.calm_since + patience + limits.lease + limits.rejoin
        missing = faults or world.hopeless or len(rounds.members) < rounds.workers
        right = missing and rounds.lacking_for(now) >= limits.rejoin
    if not right:
        here = f"{len(rounds.members)} members, N is {rounds.workers}"
        raise Violation("exit-code", f"{done} at {now:.2f}: lacking for {rounds.lacking_for(now):.2f}, {here}")


def _demand_done(checker: Checker, done: Done) -> None:
    """The target is reached, the data is used up, or somebody said so."""
    target = int(checker.settings["steps"])
    if "out of data" in done.reason:
        if not checker.rounds.were_out:
            raise Violation("exit-code", f"{done}, and of {checker.rounds.members} some have data")
    elif "accuracy" in done.reason:
        if checker.best < 0.9:
            raise Violation("exit-code", f"{done}, and the best was {checker.best}")
    elif not checker.world.stop_asked and not (target and checker.step == target):
        if checker.numbers.end is None:
            raise Violation("exit-code", f"{done} at step {checker.step} of {target}")
        checker.numbers.demand_all_used()


def demand_end_in_time(checker: Checker) -> None:
    """The job ends as soon as it is done; where that has to be saved first, nothing else happens until then."""
    target = int(checker.settings["steps"])
    if checker.world.scenario.plan is not None and (not target or checker.step <= target):
        return
    if target and checker.step >= target:
        raise Violation("no-end", f"step {checker.step} of {target} is reached, and the job goes on")
    if checker.numbers.end is not None and checker.numbers.left(None) <= 0:
        raise Violation("no-end", "every number is used, and the job goes on")


def demand_no_waiter(world: World) -> None:
    """After the faults have stopped: nobody who could go on waits for longer than a round may take."""
    scenario, limits, checker = world.scenario, world.limits, world.checker
    bound = 3 * slowest_step(scenario) + 2 * limits.rejoin + 2 * limits.lease + limits.link + limits.start
    bound += (limits.recovery + limits.save) * (scenario.plan is not None)
    now = world.agenda.now
    if now < world.calm_since + bound or checker.numbers.none_left() or not checker.rounds.all_have_places():
        return
    for worker in world.processes:
        waits = worker.state == "waiting" and not worker.out
        if waits and now - max(worker.since, world.calm_since) > bound:
            raise Violation("starved", f"worker {worker.worker} waits since {worker.since:.2f}: {world.describe()}")


def demand_end(world: World) -> None:
    """The time in which every job ends is over; only where nobody is left somebody has to stop it."""
    checker = world.checker
    waits_for_nobody = not checker.opened or not checker.rounds.sync or world.lead.job.awaits_first
    deserted = waits_for_nobody and not world.scenario.rejoins and all(it.ended for it in world.processes)
    # Before the first values are there the lead waits for its shards as long as somebody waits with it.
    if deserted or (world.hopeless and world.lead.job.phase == "EMPTY"):
        checker.seen["deserted"] += 1
        world.lead.stop(Done())
        return
    raise Violation("stuck", world.describe())


def demand_clean(world: World) -> None:
    """Everybody has gone: all knew how it ended, every push has one outcome, and no memory is left."""
    for shard in world.shards:
        if shard.generation == world.lead.generation and shard.position == world.lead.job.log.position:
            left = shard.staging.bytes() // IMAGE_BYTES - len(shard.kept)
            if left > 0:
                raise Violation("staging", f"shard {shard.number} stages {left} parts for nobody")
    for worker in world.processes:
        stopped = worker.checker.stopped
        if worker.why == "done" and (stopped is None or worker.code != stopped.exit_code):
            raise Violation("exit-code", f"worker {worker.worker} ends with {worker.code}: {stopped}")
        mended = worker.recovering is not None and worker.recovering > world.calm_since + 2 * world.limits.lease
        if worker.why == "lost" and mended and not world.hopeless and worker.since < world.checker.stopped_at:
            raise Violation("exit-code", f"worker {worker.worker} gave up, though every link was mended in time")
        worker.demand_counted()


def patience(world: World) -> float:
    """Within so many seconds after calm the job ends: every step is slow, and every limit is waited for once."""
    limits, scenario = world.limits, world.scenario
    settings, numbers = world.checker.settings, world.checker.numbers
    steps = int(settings["steps"]) or numbers.end or 8 * 40
    waits = 4 * limits.lease + limits.link + limits.start + 3 * limits.rejoin + 30.0
    waits += (2 * limits.recovery + 3 * limits.save) * (scenario.plan is not None)
    return waits + steps * (slowest_step(scenario) + (limits.rejoin + 0.2 if not scenario.rejoins else 0.0))


def slowest_step(scenario: Scenario) -> float:
    """Seconds that a step may take."""
    return 1.5 * scenario.compute * scenario.slow + 60 * scenario.delay + 5 * scenario.kernel
