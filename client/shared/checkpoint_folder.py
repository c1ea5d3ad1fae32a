"""The folder of a job's checkpoints: what the lead does in it."""

from __future__ import annotations

import json
import logging
import math
import os
import secrets
import shutil
from collections.abc import Callable, Collection, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from grpc_ps.client.shared.checkpoint import Checkpoint, looks_whole, read_manifest, verify, verify_parts
from grpc_ps.client.shared.checkpoint_format import EVALUATION, LEFTOVERS, MANIFEST, At, nowhere, step_name, step_of
from grpc_ps.client.shared.checkpoint_lock import FolderLock
from grpc_ps.client.shared.checkpoint_manifest import Manifest
from grpc_ps.client.shared.durable import replacing, reporting, sync_folder, write_all
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.logs import event

_LOGGER = logging.getLogger("grpc_ps.checkpoint")


class CheckpointFolder:
    """A folder of checkpoints. One appears in it whole, in one rename, and its numbers are never written to again.

    One process, the lead, calls `take` and then alone commits and removes; readers need not. Every call may block for
    as long as the disk does, and raises CheckpointError that names the path. Not guarded: one thread at a time.

    Args:
        path: the folder.
        at: told commit.verify, manifest.write, manifest.sync, manifest.rename, commit.rename, commit.done and prune,
            each before what it names; may raise OSError.
    """

    def __init__(self, path: Path, at: At = nowhere) -> None:
        self.path = path
        self._at = at
        self._lock: FolderLock | None = None

    @property
    def mark(self) -> str:
        """What `read_mark` gives to whoever has the same folder; empty before `take`."""
        return self._lock.mark if self._lock else ""

    def take(self, run: int) -> int:
        """Makes this process the folder's owner, and the folder if need be. Returns the job's id.

        That is the one which the folder has, so that a lead that died comes back as the same job, else `run`.

        Raises:
            CheckpointError: a live process has it, whose text names it; or the folder cannot be used.
        """
        self._lock = FolderLock(self.path, run)
        # Of the owner before, which is gone.
        self._remove_leftovers()
        return self._lock.run

    def release(self) -> None:
        """Gives the folder back; more than once is fine."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.release()

    def steps(self) -> list[int]:
        """Global steps of the checkpoints, rising, whole or not; none if there is no such folder."""
        with reporting(self.path, "read"):
            try:
                return sorted(step for name in os.listdir(self.path) if (step := step_of(name)) is not None)
            except FileNotFoundError:
                return []

    def step_path(self, step: int) -> Path:
        """Where the checkpoint of that step is or would be."""
        return self.path / step_name(step)

    def has(self, step: int) -> bool:
        """Whether that step has a checkpoint, as far as can be said without reading it all."""
        return looks_whole(self.step_path(step))

    def newest(self, on_skip: Callable[[str], None]) -> Checkpoint | None:
        """Reads checkpoints from the newest on until one is whole; None if there are none at all.

        Args:
            on_skip: told what is wrong with each that is not, in one line that names the file.

        Raises:
            CheckpointError: there are some, and none is whole.
        """
        wrong = []
        for step in reversed(self.steps()):
            problems = verify(self.step_path(step))
            if not problems:
                return self.load(step)
            if not self.step_path(step).exists():
                continue  # Readers look while the job removes old ones.
            wrong.append(problems[0])
            on_skip(problems[0])
        if wrong:
            shown = "; ".join(wrong[:3]) + (f"; and {len(wrong) - 3} more" if len(wrong) > 3 else "")
            raise CheckpointError(f"{self.path}: none of its checkpoints is whole: {shown}")
        return None

    def load(self, step: int) -> Checkpoint:
        """Reads the manifest of a step's checkpoint."""
        return Checkpoint(self.step_path(step), read_manifest(self.step_path(step)))

    def commit(self, folder: str, manifest: Manifest) -> Path:
        """Makes a checkpoint out of a folder in this one whose parts are written. Returns where it is then.

        All parts are read back before. A whole checkpoint of the same job and step is left as it is; what else is in
        the way is put aside.

        Raises:
            CheckpointError: nothing has changed, and the folder is as it was (`discard`), unless it fails at the very
                end: `has` tells.
        """
        source, target = self.path / folder, self.step_path(manifest.global_step)
        with reporting(source, "committed"):
            if self._lock is not None:
                self._lock.check()
            self._at("commit.verify")
            if problems := verify_parts(source, manifest):
                raise CheckpointError(problems[0])
            if self._is_there(target, manifest):
                event(_LOGGER, "checkpoint_there_already", folder=target)
                self.discard(folder)
                return target
            self._write_manifest(source / MANIFEST, manifest)
            self._put_aside(target)
            self._at("commit.rename")
            source.rename(target)
            sync_folder(self.path)
            self._at("commit.done")
        return target

    def _is_there(self, target: Path, manifest: Manifest) -> bool:
        if not target.exists() or verify(target):
            return False
        return read_manifest(target).run == manifest.run

    def _write_manifest(self, path: Path, manifest: Manifest) -> None:
        try:
            text = manifest.to_json()
        except ValueError as error:
            raise CheckpointError(f"{path}: cannot be written: {error}") from None
        self._at("manifest.write")
        with replacing(path, self._at, "manifest") as file:
            write_all(file, text.encode())

    def _put_aside(self, target: Path) -> None:
        if os.path.lexists(target):
            step = target.name.removeprefix("step-")
            aside = self.path / f".damaged-{step}-{secrets.token_hex(4)}"
            event(_LOGGER, "checkpoint_put_aside", logging.WARNING, folder=target, now=aside.name)
            target.rename(aside)

    def discard(self, folder: str) -> None:
        """Removes a folder that is not to be committed, as far as that is possible; `prune` finds the rest."""
        shutil.rmtree(self.path / folder, ignore_errors=True)

    def prune(self, keep: int, newest: int, protect: Collection[int] = ()) -> list[int]:
        """Removes checkpoints older than the newest `keep`, and what broken-off writing has left.

        Call it after `commit`, with its step, which is known to be whole: it counts first, and is never removed. Later
        ones were passed over when the job went back, so they are left to be put aside; of older ones those that are not
        whole do not count. Returns the steps removed.

        Args:
            keep: at least 1.
            newest: the step that was committed last.
            protect: steps to keep besides.
        """
        removed = []
        counted = 0
        for step in reversed([step for step in self.steps() if step <= newest]):
            if counted >= max(keep, 1) and step not in protect:
                self._remove(step)
                removed.append(step)
            elif looks_whole(self.step_path(step)):
                counted += 1
        self._remove_leftovers()
        return removed

    def _remove(self, step: int) -> None:
        """Removes a checkpoint: first from sight, at once, so that nobody finds half of one."""
        path = self.step_path(step)
        aside = self.path / f".removing-{step:08d}-{secrets.token_hex(4)}"
        with reporting(path, "removed"):
            self._at("prune")
            path.rename(aside)
        shutil.rmtree(aside, ignore_errors=True)

    def _remove_leftovers(self) -> None:
        with reporting(self.path, "read"):
            names = os.listdir(self.path)
        for name in names:
            if name.startswith(LEFTOVERS):
                shutil.rmtree(self.path / name, ignore_errors=True)

    def note_evaluation(self, step: int, metrics: Mapping[str, float], evaluated_step: int) -> None:
        """Writes the metrics of the model of `evaluated_step` beside the checkpoint of `step`; the last ones count."""
        path = self.step_path(step) / EVALUATION
        known = {name: value if math.isfinite(value) else None for name, value in metrics.items()}
        with reporting(path, "written"), replacing(path) as file:
            write_all(file, json.dumps({"global_step": evaluated_step, "metrics": known}).encode())

    def evaluation(self, step: int) -> dict[str, float]:
        """Metrics that `note_evaluation` wrote and that are finite; nothing if there are none."""
        return read_evaluation(self.step_path(step))

    def best(self, metric: str, *, higher_is_better: bool) -> int | None:
        """Step of the checkpoint with the best value of a metric, the newest of equals; None if none was evaluated."""
        sign = 1 if higher_is_better else -1
        values = {step: self.evaluation(step).get(metric) for step in self.steps() if self.has(step)}
        known = [(sign * value, step) for step, value in values.items() if value is not None]
        return max(known)[1] if known else None


def read_evaluation(path: Path) -> dict[str, float]:
    """The finite metrics noted beside a checkpoint; nothing if there are none, or they cannot be read."""
    record: Any = None
    with suppress(OSError, ValueError):
        record = json.loads((path / EVALUATION).read_bytes())
    metrics = record.get("metrics") if isinstance(record, dict) else None
    pairs = metrics.items() if isinstance(metrics, dict) else ()
    return {str(name): float(value) for name, value in pairs if isinstance(value, int | float) and math.isfinite(value)}
