"""The lead's folder of checkpoints: what is committed to it, and what a job goes on from."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import TypeVar

from grpc_ps.client.shared.checkpoint_flags import CheckpointSettings
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder
from grpc_ps.client.shared.checkpoint_format import At, step_name
from grpc_ps.client.shared.checkpoint_manifest import Manifest, Part
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.logs import event
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.resuming import Restored
from grpc_ps.psserver.lead.saving import Attempt, TrainingState
from grpc_ps.psserver.lead.settings import DEFAULTS
from grpc_ps.psserver.messages import signatures, specs_of_signatures
from grpc_ps.psserver.queue_file import Kept, read, write

T = TypeVar("T")
logger = logging.getLogger(__name__)


class CheckpointKeeper:
    """Does what the lead has to do in the folder, one thing after the other in a thread of its own.

    Args:
        settings: where, and how many are kept.
        at: told the points of writing.
        within: name of a folder in that one, for a job of the queue; empty for the folder itself.
    """

    def __init__(self, settings: CheckpointSettings, at: At, within: str = "") -> None:
        self._settings = settings
        self._at = at
        self._within = within
        self._folder = CheckpointFolder(settings.directory / within, at)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="commits")

    @property
    def directory(self) -> Path:
        """The folder."""
        return self._folder.path

    @property
    def mark(self) -> str:
        """What a shard finds in the same folder."""
        return self._folder.mark

    def of_job(self, within: str) -> CheckpointKeeper:
        """The keeper of a folder in this one, for one job of the queue, which may be begun anew there."""
        return CheckpointKeeper(replace(self._settings, restore=False), self._at, within)

    async def read_queue(self) -> Kept:
        """The queue as it was written last; jobs get numbers of which there is no folder. Raises CheckpointError."""
        return await self._run(lambda: read(self._settings.directory))

    async def write_queue(self, text: str) -> None:
        """Writes the queue. Raises CheckpointError."""
        await self._run(lambda: write(self._settings.directory, text))

    def path(self, step: int) -> Path:
        """Where the checkpoint of that step is."""
        return self._folder.step_path(step)

    async def _run(self, work: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._thread, work)

    async def take(self, run: int) -> int:
        """Makes the folder this lead's. Returns the job's id: the folder's, if there has been one, else `run`.

        Raises:
            CheckpointError: it is another process's, or cannot be written to.
        """
        return await self._run(lambda: self._folder.take(run))

    async def newest(self, *, cold: bool) -> Restored | None:
        """What the job goes on from: the newest checkpoint that is whole; None if there is none at all.

        Args:
            cold: the lead has just started.

        Raises:
            CheckpointError: none is whole, or there is none and one was demanded.
        """
        found = await self._run(lambda: self._folder.newest(_skip))
        if found is None and cold and self._settings.restore:
            raise CheckpointError(f"--restore: {self.directory} has no checkpoint to go on from")
        if found is None:
            return None
        return replace(restored(found.manifest, cold=cold, within=self._within), folder=str(self.directory))

    async def is_new(self) -> bool:
        """Whether the folder has no checkpoint. Raises CheckpointError."""
        return not await self._run(self._folder.steps)

    async def commit(self, attempt: Attempt, manifest: Manifest) -> Path:
        """Makes a checkpoint of an attempt's parts, then removes what need not be kept.

        Raises:
            CheckpointError: it could not be done; what was there is as it was.
        """
        return await self._run(partial(self._commit, Path(attempt.folder).name, manifest))

    def _commit(self, folder: str, manifest: Manifest) -> Path:
        path, step = self._folder.commit(folder, manifest), manifest.global_step
        best = self._settings.best
        kept = self._folder.best(best, higher_is_better=self._settings.best_rises) if best else None
        try:
            removed = self._folder.prune(self._settings.keep, step, protect=() if kept is None else (kept,))
        except CheckpointError as error:
            event(logger, "checkpoints_not_removed", logging.WARNING, why=error)
        else:
            event(logger, "checkpoints_removed", logging.DEBUG, steps=removed)
        return path

    async def discard(self, folder: str) -> None:
        """Removes what is left of an attempt that failed. What a slow shard still writes there goes later."""
        await self._run(partial(self._folder.discard, Path(folder).name))

    async def note(self, metrics: Mapping[str, float], evaluated_step: int) -> None:
        """Notes an evaluation beside the newest checkpoint that is not younger: for that one it stands."""
        try:
            await self._run(partial(self._note, metrics, evaluated_step))
        except CheckpointError as error:
            event(logger, "evaluation_not_noted", logging.WARNING, why=error)

    def _note(self, metrics: Mapping[str, float], evaluated_step: int) -> None:
        step = max((step for step in self._folder.steps() if step <= evaluated_step), default=None)
        if step is not None:
            self._folder.note_evaluation(step, metrics, evaluated_step)

    async def close(self, seconds: float) -> None:
        """Gives the folder back, if what is under way ends within `seconds`; else the end of the process does."""
        releasing = self._thread.submit(self._folder.release)
        self._thread.shutdown(wait=False)
        try:
            await asyncio.wait_for(asyncio.wrap_future(releasing), seconds)
        except asyncio.TimeoutError:
            event(logger, "checkpoints_still_written", logging.WARNING, folder=self.directory)


def _skip(line: str) -> None:
    event(logger, "checkpoint_skipped", logging.WARNING, why=line)


def manifest_of(job: Job, attempt: Attempt, plan_fingerprint: str) -> Manifest:
    """What a checkpoint says of the job as it is now."""
    definition, state = job.definition, attempt.state
    if definition is None:
        raise LookupError("only a job that is defined is saved")
    parts = (attempt.parts[shard] for shard in range(job.shards.count))
    return Manifest(
        run=job.run,
        global_step=state.step,
        opened=job.opened,
        model=definition.model,
        settings=dict(attempt.settings),
        opened_settings=dict(definition.opened),
        parameters=tuple(specs_of_signatures(definition.parameters)),
        shard_count=job.shards.count,
        plan_fingerprint=plan_fingerprint,
        cursor=state.cursor,
        returned=state.returned,
        learning_rate_factor=state.factor,
        paused=state.paused,
        started=state.started,
        created=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        parts=tuple(Part(part.file, part.size, part.sha256) for part in parts),
    )


def restored(manifest: Manifest, *, cold: bool, within: str = "") -> Restored:
    """The job as that manifest has it; `within` names the folder that it is in, in that of all checkpoints."""
    return Restored(
        name=str(Path(within) / step_name(manifest.global_step)),
        run=manifest.run,
        model=manifest.model,
        parameters=signatures(manifest.parameters),
        # What is younger than the checkpoint has its default.
        settings={**DEFAULTS, **manifest.settings},
        opened={**DEFAULTS, **manifest.opened_settings},
        opened_count=manifest.opened,
        state=TrainingState(
            step=manifest.global_step,
            cursor=manifest.cursor,
            returned=manifest.returned,
            factor=manifest.learning_rate_factor,
            paused=manifest.paused,
            started=manifest.started,
        ),
        cold=cold,
        age=max(0.0, (datetime.now(timezone.utc) - datetime.fromisoformat(manifest.created)).total_seconds()),
    )
