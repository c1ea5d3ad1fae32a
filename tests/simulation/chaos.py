"""Faults at random times: what the network, the processes and the people do."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.steering import Change

if TYPE_CHECKING:
    from simulation.shard_model import Shard
    from simulation.worker_model import Worker
    from simulation.world import World


FOR_GOOD = 1e9


class Chaos:
    """Draws a fault every so often until it is calm."""

    def __init__(self, world: World) -> None:
        self.world = world
        faults = world.scenario.faults
        self._names = list(faults)
        self._weights = list(faults.values())
        self._pins = 0
        self._late = False

    def start(self) -> None:
        """Enters the first fault, and the fatal one."""
        world = self.world
        if self._names:
            world.agenda.after(self._gap(), self._strike)
        if world.scenario.crashes:
            world.agenda.after(self._crash_gap(), self._strike_down)
        if world.scenario.fatal:
            when = world.draw() * world.choose((1.0, max(2.0, world.scenario.calm_at)))
            world.agenda.after(when, getattr(self, f"_{world.scenario.fatal}"))
        world.agenda.at(world.scenario.calm_at, world.calm_down)

    def _gap(self) -> float:
        return self.world.random.expovariate(1.0 / self.world.scenario.fault_every)

    def _crash_gap(self) -> float:
        return self.world.random.expovariate(1.0 / self.world.scenario.crash_every)

    def _strike_down(self) -> None:
        world = self.world
        if world.calm or world.lead.job.finished():
            return
        if not world.lead.life.cut:
            self._do(world.choose(world.scenario.crashes))
        world.agenda.after(self._crash_gap(), self._strike_down)

    def _do(self, name: str) -> None:
        self.world.seen[f"fault {name}"] += 1
        getattr(self, f"_{name}")()

    def _strike(self) -> None:
        world = self.world
        if world.calm or world.lead.job.done is not None:
            return
        if not world.lead.life.cut:
            self._do(world.random.choices(self._names, self._weights)[0])
        world.agenda.after(self._gap(), self._strike)

    def _somebody(self) -> Worker | None:
        live = [worker for worker in self.world.processes if not worker.ended]
        return self.world.choose(live) if live else None

    def _cut_stream(self) -> None:
        worker = self._somebody()
        if worker is not None and worker.streams:
            self.world.choose(worker.streams).break_()

    def _cut_follower(self) -> None:
        link = self.world.choose(self.world.shards).uplink.link
        if link is not None:
            link.break_()

    def _away(self) -> None:
        """A follower is out of the lead's reach for less time than makes it count as lost."""
        self._take_away(self.world.draw() * 0.5 * self.world.limits.link)

    def _take_away(self, seconds: float) -> None:
        if len(self.world.shards) > 1:
            uplink = self.world.choose(self.world.shards[1:]).uplink
            if uplink.away_until == FOR_GOOD:
                return
            uplink.away_until = FOR_GOOD if seconds == FOR_GOOD else self.world.agenda.now + seconds
            if uplink.link is not None:
                uplink.link.break_()

    def _crash(self) -> None:
        worker = self._somebody()
        if worker is not None:
            worker.end(-9, "crashed")
            self._replace(worker)

    def _replace(self, worker: Worker) -> None:
        """Somebody may start it again, with its old index or with any."""
        world = self.world
        if world.scenario.rejoins and world.draw() < 0.8:
            index = worker.worker if worker.worker >= 0 and world.draw() < 0.6 else None
            world.agenda.after(world.draw() * 3.0 * world.limits.lease, world.spawn, index)

    def _freeze(self) -> None:
        worker = self._somebody()
        if worker is not None:
            worker.sleep.until = self.world.agenda.now + self.world.draw() * 0.8 * self.world.limits.lease

    def _ghost(self) -> None:
        """A process is stopped for longer than its lease, and goes on."""
        worker = self._somebody()
        if worker is not None:
            worker.sleep.until = self.world.agenda.now + (1.1 + self.world.draw()) * self.world.limits.lease
            self._replace(worker)

    def _leave(self) -> None:
        worker = self._somebody()
        if worker is not None:
            worker.end(0, "left")
            self._replace(worker)

    def _newcomer(self) -> None:
        self.world.spawn(None)

    def _rival(self) -> None:
        """Somebody starts a second worker of an index that is held."""
        worker = self._somebody()
        if worker is not None and worker.worker >= 0:
            self.world.spawn(worker.worker)

    def _partition(self) -> None:
        """A worker's network is gone for a while: its streams break, its calls are lost."""
        worker = self._somebody()
        if worker is not None:
            worker.cut_off_until = self.world.agenda.now + self.world.draw() * 2.0 * self.world.limits.lease
            for stream in list(worker.streams):
                stream.break_()

    def _change(self) -> None:
        random, choose = self.world.random, self.world.choose
        wanted = {
            "mode": choose(("sync", "async")),
            "workers": choose((1, 2, 3, 4)),
            "backup": choose((0, 1, 2)),
            "min_workers": choose((0, 1)),
            "max_staleness": choose((-1, 0, 1, 3)),
            "learning_rate_factor": choose((0.5, 1.0, 2.0)),
            "paused": choose((True, False, False)),
        }
        names = random.sample(list(wanted), choose((1, 1, 2, 3)))
        refusal = self.world.lead.change(Change(**{name: wanted[name] for name in names}))  # type: ignore[arg-type]
        if isinstance(refusal, Refusal):
            self.world.seen[f"change refused {refusal.reason}"] += 1

    def _pin(self) -> None:
        self._pins += 1
        if isinstance(self.world.lead.pin(self._pins), Refusal):
            self.world.seen["pin refused"] += 1
        elif self.world.draw() < 0.5:
            self.world.agenda.after(self.world.draw(), self.world.lead.unpin, self._pins)

    def _report(self) -> None:
        worker = self._somebody()
        if worker is not None and worker.incarnation:
            accuracy = self.world.draw()
            args = (worker.generation, worker.worker, worker.incarnation, self.world.checker.step, accuracy)
            self.world.call(worker, self.world.lead.report, args, None)

    def _overflow(self) -> None:
        self.world.overflow_armed = True

    def _reboot(self) -> None:
        """A follower's process is started anew: its state is gone, and there are no checkpoints."""
        if len(self.world.shards) > 1:
            self.world.rebooted = self.world.hopeless = True
            self._crash_follower()

    def _crash_follower(self) -> None:
        if len(self.world.shards) > 1:
            self.world.crash(self.world.choose(range(1, len(self.world.shards))))

    def _crash_lead(self) -> None:
        self.world.crash(0)

    def _crash_late(self) -> None:
        """The lead will crash when it has told of the end."""
        self._late = True

    def ended(self) -> None:
        """The job has ended well."""
        if self._late:
            self._late = False
            self.world.agenda.after(self.world.draw() * 0.3, self.world.crash, 0)

    def _leaving(self) -> None:
        """A shard is told to end, has a second's grace, and is started anew."""
        world = self.world
        shard = world.choose(world.shards)
        world.signalled = True
        if shard.number == 0:
            world.lead.leaving(0)
        else:
            shard.uplink.leave()
        world.agenda.after(world.draw(), self._left, shard)

    def _left(self, shard: Shard) -> None:
        if self.world.shards[shard.number] is shard:
            self.world.crash(shard.number)

    def _damage(self) -> None:
        """The newest checkpoint is damaged, and soon somebody wants to read it."""
        world = self.world
        if world.disk.damage():
            world.seen["damaged"] += 1
            world.agenda.after(world.draw() * 0.2, world.choose((self._crash_lead, self._crash_follower)))

    def _save(self) -> None:
        if isinstance(self.world.lead.save(), Refusal):
            self.world.seen["save refused"] += 1

    def _gone(self) -> None:
        self._take_away(3.0 * self.world.limits.link if self.world.scenario.plan is None else FOR_GOOD)
        self.world.hopeless = True

    def _abandoned(self) -> None:
        """A worker is lost and nobody starts another."""
        self._crash()

    def _stop(self) -> None:
        if self.world.lead.life.cut:
            self.world.agenda.after(1.0, self._stop)
        else:
            self.world.lead.stop(Done())
