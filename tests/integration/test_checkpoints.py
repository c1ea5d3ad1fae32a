"""When checkpoints are written, by whom, and what happens when the disk does not want them."""

from __future__ import annotations

import errno
import threading
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from history import wait_for
from light_worker import gathered, run_worker, run_workers
from recovery_bed import LIMITS, RecoveryBed
from saved_jobs import LR, SPECS, by_number, manifest_of, training, whole_steps

from grpc_ps.client.shared.errors import CheckpointError, JobFailed, Mismatch
from grpc_ps.client.shared.faults import SAVING_POINTS

BEFORE_THE_COMMIT = tuple(point for point in SAVING_POINTS if point not in ("commit.done", "prune"))


class Full:
    """A disk that has no room at the n-th passings of a point, of shard 1 if that passes it."""

    def __init__(self, point: str, *, first: int = 1, times: int = 1 << 30) -> None:
        self._point = point
        self._passings = range(first, first + times)
        self._shard = 1 if point.startswith("part") else 0
        self.count = self.struck = 0

    def strike_next(self) -> None:
        self._passings = range(self.count + 1, self.count + 2)

    def __call__(self, shard: int, point: str) -> None:
        if (shard, point) != (self._shard, self._point):
            return
        self.count += 1
        if self.count in self._passings:
            self.struck += 1
            raise OSError(errno.ENOSPC, "No space left on device")


def test_b75_four_workers_and_a_checkpoint_every_step(tmp_path: Path) -> None:
    """Fault B75: one commit a step, all of them whole, and nothing else is left in the folder."""

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        bed.log.until_committed(batch // 4)
        return by_number(worker, batch, parameters)

    presets = {"learning_rate": LR, "steps": 12, "mode": "sync", "workers": 4}
    with RecoveryBed(tmp_path, presets=presets, checkpoints={"steps": 1, "keep": 100}) as bed:
        with training(bed, 4, gradient):
            pass
        assert bed.wait_ended() == [None, None]
        commits = [int(line.split("global_step=")[1].split()[0]) for line in bed.log.of("checkpoint ")]
    assert commits == list(range(13))
    assert whole_steps(tmp_path) == commits
    assert sorted(path.name for path in tmp_path.iterdir()) == ["lock.json", *(f"step-{n:08d}" for n in commits)]
    for step in commits:
        assert manifest_of(tmp_path, step).cursor == 4 * step


def test_b75_a_second_job_in_the_same_folder_is_refused(tmp_path: Path) -> None:
    """Its owner is named with its job; the first one goes on."""
    with RecoveryBed(tmp_path, presets={"learning_rate": LR, "steps": 9}) as bed:
        run = bed.servers[0]._replay.identity.run
        with (
            pytest.raises(CheckpointError, match=f"in use by job {run:016x}, pid .*--checkpoint-dir"),
            RecoveryBed(tmp_path),
        ):
            raise AssertionError("a second lead has started")
        with training(bed):
            pass
        assert bed.wait_ended() == [None, None]
    assert whole_steps(tmp_path) == [0, 9]
    # The folder of a job that has ended well is free.
    with RecoveryBed(tmp_path) as bed:
        assert bed.log.of("resumed ", "global_step=9")
        assert not bed.log.of("checkpoint_lock_taken_over")


def test_b75_shards_with_different_folders_are_found_out(tmp_path: Path) -> None:
    """Also one without a folder, and one with a folder while the lead has none: both sides are named."""
    one, other = tmp_path / "one", tmp_path / "other"
    with RecoveryBed(one) as bed:
        for folder, text in ((other, "another folder than shard 0, which"), (None, "no folder, and shard 0")):
            bed.kill(1)
            settings = None if folder is None else bed.settings(folder)
            bed.start(1, checkpoints=settings)
            error = bed.ended_with(1)
            assert isinstance(error, Mismatch)
            assert f"shard 1 has {text} has {one}" in str(error)
    assert not other.exists()
    with RecoveryBed(one) as bed:
        bed.log.until("shard_connected ")


@pytest.mark.parametrize("point", BEFORE_THE_COMMIT)
def test_b79_a_full_disk_is_a_warning_and_the_next_interval_succeeds(tmp_path: Path, point: str) -> None:
    """Fault B79: the checkpoint of step 10 fails there; that of step 0 stays, the next is saved, training goes on."""

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if batch >= 14:
            bed.log.until("checkpoint_failed ")
            with lock:
                if "steps" not in seen:
                    seen["steps"] = whole_steps(tmp_path)
        return by_number(worker, batch, parameters)

    lock = threading.Lock()
    seen: dict[str, list[int]] = {}
    full = Full(point, first=1 << 30)
    presets = {"learning_rate": LR, "steps": 25}
    with RecoveryBed(tmp_path, presets=presets, at=full, checkpoints={"steps": 10, "keep": 1}) as bed:
        bed.at_step(5, full.strike_next)
        with training(bed, 2, gradient):
            pass
        assert bed.wait_ended() == [None, None]
        bed.history.check()
        warnings = bed.log.of("checkpoint_failed ")
        assert full.struck == 1
        assert any("No space left on device" in line for line in warnings), warnings
    assert seen["steps"] == [0]
    assert whole_steps(tmp_path) == [25]


@pytest.mark.parametrize("point", ["part.write", "manifest.sync"])
def test_b79_without_a_first_checkpoint_the_job_ends(tmp_path: Path, point: str) -> None:
    """Exit 6 everywhere, before any update."""
    with RecoveryBed(tmp_path, presets={"learning_rate": LR, "steps": 25}, at=Full(point)) as bed:
        outcome = run_worker(bed.addresses, SPECS, by_number, rejoin=True)
        ended = bed.wait_ended()
    assert outcome.last is not None
    assert (outcome.last.exit_code, outcome.sent) == (6, 0)
    assert "the first checkpoint could not be written" in outcome.last.reason
    assert [type(error) for error in ended] == [JobFailed, JobFailed]
    for error in ended:
        assert isinstance(error, JobFailed)
        assert error.exit_code == 6
        assert "No space left on device" in str(error)
    assert whole_steps(tmp_path) == []


@pytest.mark.parametrize(("times", "saved"), [(1, True), (1 << 30, False)])
def test_b79_the_last_checkpoint_is_tried_again(tmp_path: Path, times: int, saved: bool) -> None:
    """For a while; then everybody ends with exit 6, and the last good one stays."""
    full = Full("part.open", first=3, times=times)
    presets = {"learning_rate": LR, "steps": 15}
    limits = replace(LIMITS, retry=20.0 if saved else 0.4)
    with RecoveryBed(tmp_path, presets=presets, limits=limits, at=full, checkpoints={"steps": 10}) as bed:

        def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
            if batch > 12:
                bed.log.until_committed(10)
            return by_number(worker, batch, parameters)

        with training(bed, 2, gradient) as workers:
            pass
        ended = bed.wait_ended()
        assert full.struck == 1 if saved else full.struck >= 1
    codes = [outcome.last.exit_code if outcome.last else None for outcome in workers.result()]
    assert codes == [0, 0] if saved else codes == [6, 6]
    assert whole_steps(tmp_path) == ([0, 10, 15] if saved else [0, 10])
    if saved:
        assert ended == [None, None]
    for error in ended if not saved else ():
        assert isinstance(error, JobFailed)
        assert error.exit_code == 6
        assert "the last checkpoint, of step 15, could not be written" in str(error)


@pytest.mark.parametrize("where", ["", "sub/folder"])
def test_b79_a_folder_that_cannot_be_used_is_found_at_the_start(tmp_path: Path, where: str) -> None:
    """A file is in its place: mode bits stop nobody who is root."""
    file = tmp_path / "taken"
    file.write_text("a file")
    with pytest.raises(CheckpointError, match="taken"), RecoveryBed(file / where):
        raise AssertionError("the lead has started")
    assert file.read_text() == "a file"


@pytest.mark.parametrize("shard", [0, 1])
@pytest.mark.parametrize("slot", [False, True])
def test_b80_what_is_not_finite_is_never_committed(tmp_path: Path, shard: int, slot: bool) -> None:
    """Fault B80: a value that is NaN, or an infinite slot that leaves all values finite: exit 5 with the name.

    The last finite checkpoint stays, and restores.
    """
    presets = {"learning_rate": LR, "optimizer": "adagrad", "steps": 30}

    def spoil() -> None:
        # Behind everybody's back, as a broken memory would.
        held = next(it for it in bed.servers[shard]._replay._updates._store._held)
        spoiled.append(held.region.blocks[0].parameter)
        (next(iter(held.slots.values())) if slot else held.variable)[0].assign(np.inf if slot else np.nan)

    spoiled: list[str] = []
    with RecoveryBed(tmp_path, presets=presets, checkpoints={"steps": 5, "keep": 2}) as bed:

        def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
            if (step := (batch - 2) // 5 * 5) > 0:
                wait_for(lambda: bool(bed.log.of("checkpoint ", f"global_step={step} ") or spoiled), f"step {step}")
            return by_number(worker, batch, parameters)

        bed.at_step(13, spoil, shard)
        with training(bed, 2, gradient) as workers:
            pass
        ended = bed.wait_ended()
    for outcome in workers.result():
        assert outcome.last is not None
        assert outcome.last.exit_code == 5
        assert spoiled[0] in outcome.last.reason
    assert [getattr(error, "exit_code", None) for error in ended] == [5, 5]
    assert whole_steps(tmp_path) == [5, 10]
    with RecoveryBed(tmp_path, presets=presets) as bed, training(bed, 2):
        pass
    assert whole_steps(tmp_path)[-1] == 30


def test_b60_an_idle_job_writes_nothing(tmp_path: Path) -> None:
    """Saved by time: once for each time that there was an update since."""
    go, idle = threading.Event(), threading.Event()

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if batch == 3:
            idle.set()
            assert go.wait(30)
        return by_number(worker, batch, parameters)

    presets = {"learning_rate": LR, "steps": 6}
    with RecoveryBed(tmp_path, presets=presets, checkpoints={"seconds": 0.05, "keep": 100}) as bed:
        with training(bed, 1, gradient):
            assert idle.wait(30)
            bed.log.until_committed(3)
            lead: Any = bed.servers[0]
            attempts, ticks, tick = lead._coordinator.job.saving.attempts, [], lead._coordinator.job.tick
            lead._coordinator.job.tick = lambda now: (ticks.append(now), tick(now))
            # Ten intervals and more go by.
            wait_for(lambda: len(ticks) > 1 and ticks[-1] - ticks[0] > 0.6, "time goes by")
            assert lead._coordinator.job.saving.attempts == attempts
            go.set()
        assert bed.wait_ended() == [None, None]
    assert whole_steps(tmp_path)[-1] == 6


@pytest.mark.usefixtures("leaving_is_heard")
def test_b55_the_last_checkpoint_is_there_before_anybody_is_told_of_the_end(tmp_path: Path) -> None:
    """Fault B55: every worker finds the folder of the last step when its answer says that the job is done."""
    found: list[bool] = []

    def work(number: int) -> Any:
        outcome = run_worker(bed.addresses, SPECS, gathered(bed, 2, by_number), index=number)
        found.append((tmp_path / "step-00000050" / "manifest.json").exists())
        return outcome

    limits = replace(LIMITS, lease=60.0)
    with RecoveryBed(tmp_path, presets={"learning_rate": LR, "steps": 50}, limits=limits) as bed:
        run_workers(2, work)
        # By themselves, once the last worker has left: no lease has to end.
        assert bed.wait_ended() == [None, None]
    assert found == [True, True]
    assert whole_steps(tmp_path) == [0, 50]
