"""How checkpoints are committed on shard 0, and how one generation follows another: `coordinator.py`, `commits.py`.

Mirrored: an attempt whose parts are all reported is committed beside what goes on; a job that has fallen is followed by
another one, of a new generation, from the newest whole checkpoint, once a commit that is under way has ended; all links
and streams of the old generation end with ROLLED_BACK; who was ending the job ends the new one. A process
that starts does the same with what it finds.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.disk import Checkpoint
from simulation.invariants import Checker
from simulation.lease_model import PARAMETERS
from simulation.scenario import RUN

from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.resuming import Restored
from grpc_ps.psserver.lead.saving import Attempt, SavedPart, Saving

if TYPE_CHECKING:
    from simulation.lead_model import Lead


class Recovery:
    """What the lead has beside the job: the disk, and the next generation.

    Attributes:
        under_way: the job has fallen, and the next generation has not begun.
        asked: how somebody wants the job to end; a rollback does not take that back.
    """

    def __init__(self, lead: Lead) -> None:
        self.under_way = False
        self.asked: Done | None = None
        self._lead = lead
        self._world = lead.world
        self._commits = 0
        self._unheard: set[str] = set()

    def begin(self, *, cold: bool) -> None:
        """Begins a generation from what is on the disk."""
        checkpoint = self._newest()
        checker = Checker(self._world, cold=cold)
        self._lead.begin(self._job(checkpoint, cold=cold), checker)
        self.under_way = False
        self._lead.flush()

    def _newest(self) -> Checkpoint | None:
        whole = self._world.disk.whole()
        return whole[-1] if whole else None

    def _job(self, checkpoint: Checkpoint | None, *, cold: bool) -> Job:
        world, scenario = self._world, self._world.scenario
        restored = None
        if checkpoint is not None:
            restored = Restored(
                name=checkpoint.name,
                run=RUN,
                model="linear",
                parameters=PARAMETERS,
                settings=checkpoint.settings,
                opened=checkpoint.opened,
                opened_count=1,
                state=checkpoint.state,
                cold=cold,
            )
        return world.job_class(
            run=RUN,
            shard_count=scenario.shards,
            presets=scenario.settings,
            limits=world.limits,
            generation=world.generation + 1,
            plan=scenario.plan,
            restored=restored,
        )

    def look(self, job: Job, saving: Saving) -> None:
        """After each decision: is there something to commit, has the job fallen?"""
        if (attempt := saving.to_commit()) is not None:
            self._commit(job, attempt)
        if job.fallen and not self.under_way:
            self._fall()

    def reported(self, part: SavedPart) -> None:
        """A shard says what became of its part."""
        if part.error:
            self._lead.checker.restart.failed(part.folder, self._world.agenda.now)

    def _commit(self, job: Job, attempt: Attempt) -> None:
        world, lead = self._world, self._lead
        beginning = lead.checker.restart.committing(attempt)
        assert job.definition is not None
        checkpoint = Checkpoint(
            name=f"step-{attempt.state.step:08d}",
            state=attempt.state,
            settings=attempt.settings,
            opened=job.definition.opened,
            parts=dict(world.disk.parts(attempt.folder)),
            beginning=beginning,
        )
        self._commits += 1
        world.agenda.enter(world.disk_time(), lead.life, self._rename, (job, lead.checker, attempt, checkpoint))

    def _rename(self, job: Job, checker: Checker, attempt: Attempt, checkpoint: Checkpoint) -> None:
        """The commit becomes visible, in one moment; what follows takes a while more."""
        world = self._world
        error = "no space left" if world.disk_fails() else ""
        if error:
            world.seen["commit failed"] += 1
        else:
            # One whose commit was given up, for it took too long, is there all the same, and stays.
            if checkpoint.name not in self._unheard or checkpoint.name not in [it.name for it in world.disk.whole()]:
                world.disk.commit(checkpoint)
            self._unheard.add(checkpoint.name)
            checker.restart.committed_one(attempt.state.step)
            world.seen["committed"] += 1
        world.agenda.enter(world.disk_time(), self._lead.life, self._end_commit, (job, checker, attempt, error))

    def _end_commit(self, job: Job, checker: Checker, attempt: Attempt, error: str) -> None:
        self._commits -= 1
        if error:
            checker.restart.failed(attempt.folder, self._world.agenda.now)
        if job.saving is not None and job.saving.current is attempt and not error:
            self._unheard.discard(f"step-{attempt.state.step:08d}")
            checker.restart.heard_of(attempt.state.step)
        if job is self._lead.job:
            job.committed(attempt.folder, error, self._world.agenda.now)
            self._lead.flush()

    def _fall(self) -> None:
        """Ends a generation: nothing of it counts from here on."""
        self.under_way = True
        world, lead = self._world, self._lead
        world.seen["rollback"] += 1
        for links in lead.links.values():
            for link in links:
                link.up.cut = True
                link.down.send(link.shard.uplink.link_ended, link)
        lead.links.clear()
        world.shards[0].end_generation()
        world.agenda.enter(world.disk_time(), lead.life, self._go_back)

    def _go_back(self) -> None:
        if self._commits:  # the folder is used by one at a time
            self._world.agenda.enter(self._world.disk_time(), self._lead.life, self._go_back)
            return
        fallen = self._lead.job
        self.begin(cold=False)
        done = fallen.done or self.asked
        if done is not None:
            self._lead.job.stop(done, self._world.agenda.now)
            self._lead.flush()
