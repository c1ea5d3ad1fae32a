"""Planted bugs in what is saved, and in what a generation begins from. `mutants.py` says what finds them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from simulation.door_model import Door
from simulation.lead_model import Lead
from simulation.recovery_model import Recovery
from simulation.stream import FollowerLink, Stream
from simulation.uplink_model import Uplink

from grpc_ps.psserver.lead import resuming
from grpc_ps.psserver.lead.batches import BatchNumbers
from grpc_ps.psserver.lead.durability import Durability
from grpc_ps.psserver.lead.ending import Ending
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.joining import Definition
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.saving import Attempt, SavedPart, Saving, TrainingState
from grpc_ps.psserver.lead.training import Training
from grpc_ps.psserver.lead.waits import Waits


def saves_without_the_leases(patch: Any) -> None:
    """The numbers that workers hold when a position is saved are lost with it."""
    patch.setattr(BatchNumbers, "state", lambda self: (self._cursor, tuple(self._returned)))


def saves_the_cursor_one_off(patch: Any) -> None:
    """The last number that was handed out is handed out again after a restart."""
    state = BatchNumbers.state

    def off(self: BatchNumbers) -> tuple[int, tuple[int, ...]]:
        cursor, returned = state(self)
        return max(0, cursor - 1), returned

    patch.setattr(BatchNumbers, "state", off)


def saves_before_the_update(patch: Any) -> None:
    """The entry that saves a step stands before its update."""
    apply = Training._apply

    def early(self: Training, pushes: Any, scales: Any, now: float) -> None:
        on_update, self._on_update = self._on_update, lambda step, now: None
        self.step += 1
        on_update(self.step, now)
        self.step -= 1
        apply(self, pushes, scales, now)
        self._on_update = on_update

    patch.setattr(Training, "_apply", early)


class _Live(Mapping[str, Any]):
    def __init__(self, definition: Definition) -> None:
        self._definition = definition

    def __getitem__(self, name: str) -> Any:
        return self._definition.settings[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._definition.settings)

    def __len__(self) -> int:
        return len(self._definition.settings)


def saves_the_settings_of_another_position(patch: Any) -> None:
    """A checkpoint gets the settings that the job has when it is committed."""
    write = Durability._write

    def late(self: Durability, now: float) -> None:
        write(self, now)
        saving, definition = self._job.saving, self._job.definition
        assert saving is not None
        assert saving.current is not None
        assert definition is not None
        saving.current.settings = _Live(definition)

    patch.setattr(Durability, "_write", late)


def commits_what_one_shard_has_written(patch: Any) -> None:
    """A checkpoint is committed when the first part is written."""
    report = Saving.report

    def hasty(self: Saving, shard: int, part: SavedPart) -> bool:
        failed = report(self, shard, part)
        if self.current is not None and not failed:
            for other in range(self._shard_count):
                self.current.parts.setdefault(other, part)
        return failed

    patch.setattr(Saving, "report", hasty)


def takes_the_part_of_another_attempt(patch: Any) -> None:
    """A part that comes too late counts for the next attempt."""
    report = Saving.report

    def blind(self: Saving, shard: int, part: SavedPart) -> bool:
        return report(self, shard, replace(part, folder=self.current.folder) if self.current else part)

    patch.setattr(Saving, "report", blind)


def begins_before_anything_is_saved(patch: Any) -> None:
    """Workers get work while step 0 is not on the disk."""
    opened = Durability.opened

    def unheld(self: Durability, now: float) -> None:
        opened(self, now)
        if self._job.training is not None:
            self._job.training.held = False

    patch.setattr(Durability, "opened", unheld)


def ends_before_the_commit(patch: Any) -> None:
    """Everybody is told of the end while the last step is being written."""
    end = Durability.end

    def hasty(self: Durability, done: Any, now: float, **how: Any) -> bool:
        end(self, done, now, **how)
        return False

    patch.setattr(Durability, "end", hasty)


def gives_up_the_last_checkpoint_at_once(patch: Any) -> None:
    """The last checkpoint is not tried again."""
    patch.setattr(Ending, "has_failed", lambda self, now: self._failing_since is not None)


def resumes_from_the_checkpoint_before(patch: Any) -> None:
    """A generation begins from an older checkpoint, though the newest is whole."""
    patch.setattr(Recovery, "_newest", lambda self: (self._world.disk.whole()[-2:] or [None])[0])


def resumes_from_a_damaged_checkpoint(patch: Any) -> None:
    """A generation begins from the newest checkpoint, whole or not."""

    def newest(self: Recovery) -> Any:
        checkpoints = self._world.disk.checkpoints
        return checkpoints[max(checkpoints)] if checkpoints else None

    patch.setattr(Recovery, "_newest", newest)


def resumes_from_an_uncommitted_attempt(patch: Any) -> None:
    """A commit that fails, or is cut off by a crash, has left a checkpoint all the same."""
    commit = Recovery._commit

    def visible(self: Recovery, job: Job, attempt: Attempt) -> None:
        commit(self, job, attempt)
        self._mutant = attempt.state  # type: ignore[attr-defined]

    restored = Recovery._job

    def resume(self: Recovery, checkpoint: Any, *, cold: bool) -> Job:
        state = getattr(self, "_mutant", None)
        if checkpoint is not None and state is not None and state.step > checkpoint.state.step:
            checkpoint = replace(checkpoint, name=f"step-{state.step:08d}", state=state)
        return restored(self, checkpoint, cold=cold)

    patch.setattr(Recovery, "_commit", visible)
    patch.setattr(Recovery, "_job", resume)


def forgets_the_returned_numbers(patch: Any) -> None:
    """A generation begins behind the last number that was handed out, whatever came back."""
    init = Training.__init__

    def forgetful(self: Training, *rest: Any, state: TrainingState, **more: Any) -> None:
        init(self, *rest, state=replace(state, returned=()), **more)

    patch.setattr(Training, "__init__", forgetful)


def forgets_the_factor_of_a_checkpoint(patch: Any) -> None:
    """A generation begins with the learning rate of the schedule, though it was changed."""
    init = Training.__init__

    def forgetful(self: Training, *rest: Any, state: TrainingState, **more: Any) -> None:
        init(self, *rest, state=replace(state, factor=1.0), **more)

    patch.setattr(Training, "__init__", forgetful)


def starts_at_once_after_a_restart(patch: Any) -> None:
    """A job that goes on after a restart of the lead does not wait for its workers."""
    begin = resuming.begin_restored
    patch.setattr("grpc_ps.psserver.lead.job.begin_restored", lambda job, it: begin(job, replace(it, cold=False)))


def waits_for_a_shard_for_ever(patch: Any) -> None:
    """A lead that has started anew waits without an end for a shard that does not come back."""
    end = Waits.end

    def patient(self: Waits, job: Job, now: float) -> Done | None:
        return None if job.awaits_first and job.phase == "RESTORING" else end(self, job, now)

    patch.setattr(Waits, "end", patient)


def waits_for_a_start_after_a_rollback(patch: Any) -> None:
    """A job that goes back to a checkpoint waits for all its workers as if it had never started."""
    begin = resuming.begin_restored
    patch.setattr("grpc_ps.psserver.lead.job.begin_restored", lambda job, it: begin(job, replace(it, cold=True)))


def forgets_a_stop(patch: Any) -> None:
    """Somebody ends the job; a rollback that comes before its last checkpoint takes that back."""
    patch.setattr(Recovery, "asked", property(lambda self: None, lambda self, done: None), raising=False)


def keeps_what_a_follower_had(patch: Any) -> None:
    """A follower goes on with its state when another generation begins."""

    def welcome(self: Uplink, link: FollowerLink, generation: int, position: int) -> None:
        before, self.shard.generation = self.shard.generation, generation
        if not before:
            self.shard.checker = self.world.checkers[generation]
        original(self, link, generation, position)

    original = Uplink.welcome
    patch.setattr(Uplink, "welcome", welcome)


def counts_positions_of_another_generation(patch: Any) -> None:
    """A follower of an older generation is given the entries behind the last one that it had there."""
    hello = Lead.hello

    def blind(self: Lead, link: FollowerLink, boot: int, generation: int, position: int) -> None:
        hello(self, link, boot, self.generation, position)

    patch.setattr(Lead, "hello", blind)


def hears_links_of_an_older_generation(patch: Any) -> None:
    """What a follower has told the generation before is taken for a report to this one."""
    fall = Recovery._fall

    def hearing(self: Recovery) -> None:
        links = [link for several in self._lead.links.values() for link in several]
        fall(self)
        for link in links:
            link.up.cut = False

    patch.setattr(Recovery, "_fall", hearing)


def asks_only_for_the_incarnation(patch: Any) -> None:
    """A follower that is behind takes a worker of the next generation for one of its own, and sends it away."""
    attach = Door.attach

    def hasty(self: Door, stream: Stream) -> None:
        shard = self._shard
        admitted = shard.admitted.get(stream.worker.worker, 0)
        if shard.number and stream.served and stream.generation != shard.generation and admitted >= stream.incarnation:
            stream.refuse("FENCED" if admitted > stream.incarnation else "ROLLED_BACK")
        else:
            attach(self, stream)

    patch.setattr(Door, "attach", hasty)


def welcomes_an_older_generation(patch: Any) -> None:
    """A worker of an older generation, whose incarnation is given to somebody else by now, is not sent away."""
    attach = Door.attach

    def blind(self: Door, stream: Any) -> None:
        stream.generation = self._shard.generation
        attach(self, stream)

    patch.setattr(Door, "attach", blind)
    patch.setattr(Lead, "_is_present", lambda self, generation: not self.recovery.under_way)
