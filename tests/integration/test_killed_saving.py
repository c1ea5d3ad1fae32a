"""Shards that are killed while they save, checkpoints that are damaged, and reports that come late or never."""

from __future__ import annotations

import random
import shutil
import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from history import wait_for
from recovery_bed import LIMITS, RecoveryBed
from saved_jobs import LR, by_number, manifest_of, state_of, summed, training, whole_steps

from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.client.shared.faults import SAVING_POINTS
from grpc_ps.protos.coordination_pb2 import Saved
from grpc_ps.psserver.upstream import ShardReports

STEPS = 24
PRESETS = {"learning_rate": LR, "steps": STEPS}
KILLS = 12


def drawn(seed: int) -> tuple[str, int, tuple[int, ...]]:
    """A point, its passing, and whom to kill there: the shard that passes it, or both. Every point comes."""
    draw = random.Random(seed)
    point = SAVING_POINTS[seed % len(SAVING_POINTS)]
    here = draw.randrange(2) if point.startswith("part") else 0
    return point, draw.randrange(2, 5), (here, 1 - here) if draw.random() < 0.4 else (here,)


class Striker:
    """Kills when a shard passes a point for the n-th time; once."""

    def __init__(self, point: str, passing: int, victims: tuple[int, ...]) -> None:
        self._point = point
        self._left = passing
        self.victims = victims
        self.kill: Callable[..., None] = lambda *shards: None
        self.committed: list[int] = []
        self.struck = threading.Event()

    def __call__(self, shard: int, point: str) -> None:
        if shard != self.victims[0] or point != self._point or self.struck.is_set():
            return
        self._left -= 1
        if self._left == 0:
            self.kill(*self.victims)
            self.struck.set()


def paced(bed: RecoveryBed, every: int, striker: Striker) -> Callable[..., Any]:
    """Nobody goes on before a step that is to be saved is saved, or somebody is killed at that."""

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if (step := (batch - 2) // every * every) > 0 and not striker.struck.is_set():
            saved = ("checkpoint ", f"global_step={step} ")
            wait_for(lambda: bool(bed.log.of(*saved)) or striker.struck.is_set(), f"step {step} is saved")
        return by_number(worker, batch, parameters)

    return gradient


@pytest.mark.parametrize("seed", range(KILLS))
def test_b72_killed_while_saving(tmp_path: Path, seed: int) -> None:
    """Fault B72: the newest step that is whole is gone on from, there always is one, and leftovers are removed."""
    point, passing, victims = drawn(seed)
    striker = Striker(point, passing, victims)
    with RecoveryBed(tmp_path, presets=PRESETS, at=striker, checkpoints={"steps": 4, "keep": 2}) as bed:
        striker.kill = bed.kill
        with training(bed, 2, paced(bed, 4, striker)):
            assert striker.struck.wait(30)
            for victim in sorted(victims):
                bed.until_dead(victim)
            whole = whole_steps(tmp_path)
            assert whole, "no checkpoint is left"
            for victim in sorted(victims):
                bed.start(victim)
            # A part that was just missing may still be committed by a lead that lives.
            gone_back = bed.log.until("resumed " if 0 in victims else "rollback ")
        assert bed.wait_ended() == [None, None]
        bed.history.check()
        bed.log.check_nothing_confirmed_is_lost()
        step = int(gone_back.split("to_step=" if 0 not in victims else "global_step=")[1].split()[0])
        assert step == whole[-1] if 0 in victims else step >= whole[-1]
        used = bed.history.applied_batches()
    assert whole_steps(tmp_path)[-1] == STEPS
    np.testing.assert_array_equal(state_of(tmp_path, STEPS)["b", ""], summed(used))
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith((".saving", ".removing"))] == []


def make(directory: Path) -> None:
    """A job of 24 steps with checkpoints at 0, 8, 16 and 24."""
    striker = Striker("", 0, (0,))
    with RecoveryBed(directory, presets=PRESETS, checkpoints={"steps": 8, "keep": 9}) as bed:
        with training(bed, 2, paced(bed, 8, striker)):
            pass
        assert bed.wait_ended() == [None, None]
    assert whole_steps(directory) == [0, 8, 16, 24]


def flip(file: Path) -> None:
    data = bytearray(file.read_bytes())
    data[-1] ^= 1
    file.write_bytes(data)


DAMAGE: dict[str, Callable[[Path], object]] = {
    "no manifest": lambda step: (step / "manifest.json").unlink(),
    "manifest cut": lambda step: (step / "manifest.json").write_bytes((step / "manifest.json").read_bytes()[:-20]),
    "part flipped": lambda step: flip(step / "shard-00001-of-00002.safetensors"),
    "part gone": lambda step: (step / "shard-00000-of-00002.safetensors").unlink(),
    "parts swapped": lambda step: shutil.copy(
        step / "shard-00000-of-00002.safetensors", step / "shard-00001-of-00002.safetensors"
    ),
}


def test_b73_a_damaged_checkpoint_is_skipped_with_a_warning(tmp_path: Path) -> None:
    """Fault B73: the one before is taken, and the job is trained again from there; none whole, and it is refused."""
    make(tmp_path / "all")
    more = {**PRESETS, "steps": 26}
    for number, (damage, spoil) in enumerate(DAMAGE.items()):
        directory = tmp_path / str(number)
        shutil.copytree(tmp_path / "all", directory)
        spoil(directory / "step-00000024")
        with RecoveryBed(directory, presets=more) as bed, training(bed):
            assert "step-00000024" in bed.log.until("checkpoint_skipped "), damage
            assert bed.log.of("resumed ", "global_step=16"), damage
        assert bed.history.updates[0][0].step == 17
        assert whole_steps(directory)[-1] == 26
    for step in (0, 8, 16, 24):
        flip(tmp_path / "all" / f"step-{step:08d}" / "shard-00001-of-00002.safetensors")
    with pytest.raises(CheckpointError, match="step-00000024"), RecoveryBed(tmp_path / "all", presets=more):
        raise AssertionError("the lead has started")
    assert len(list((tmp_path / "all").glob("step-*"))) == 4


def test_b73_a_rollback_skips_what_is_damaged_while_the_job_runs(tmp_path: Path) -> None:
    """Step 16 is spoilt after it was committed; shard 1 is killed: all go back to 8."""
    striker = Striker("", 0, (0,))

    def strike() -> None:
        flip(tmp_path / "step-00000016" / "shard-00000-of-00002.safetensors")
        bed.kill(1)

    with RecoveryBed(tmp_path, presets=PRESETS, checkpoints={"steps": 8, "keep": 9}) as bed:
        bed.at_step(21, strike)
        with training(bed, 2, paced(bed, 8, striker)):
            bed.until_dead(1)
            bed.start(1)
        assert bed.wait_ended() == [None, None]
        bed.history.check()
        ((_, to_step),) = bed.log.rollbacks()
        assert to_step == 8
        assert bed.log.of("checkpoint_skipped ", "step-00000016")
    assert manifest_of(tmp_path, STEPS).opened == 1


@pytest.mark.parametrize("made", [False, True])
def test_b73_nothing_to_restore(tmp_path: Path, made: bool) -> None:
    """Fault B73: demanded with --restore and not there: exit 6, never a fresh start."""
    directory = tmp_path / "checkpoints"
    if made:
        directory.mkdir()
    with (
        pytest.raises(CheckpointError, match=r"--restore: .*checkpoints has no checkpoint"),
        RecoveryBed(directory, checkpoints={"restore": True}),
    ):
        raise AssertionError("the lead has started")


def test_reports_of_another_folder_and_of_another_generation_do_nothing(tmp_path: Path) -> None:
    """A part that was written for an attempt that is over is no part of the present one."""
    late: list[Saved] = []

    def resend() -> None:
        lead: Any = bed.servers[0]._coordinator
        for report in late:
            ShardReports(lead, 1).saved(report)
            assert lead.job.saving.current is None

    def note(shard: int, point: str) -> None:
        report = bed.servers[1]._replay.saver.saved if len(bed.servers) > 1 else None
        if report is not None and report not in late:
            late.append(report)

    with RecoveryBed(tmp_path, presets=PRESETS, at=note, checkpoints={"steps": 8, "keep": 9}) as bed:
        bed.at_step(15, resend)
        bed.at_step(20, lambda: bed.kill(1))
        bed.at_step(23, resend)
        with training(bed, 2, paced(bed, 8, Striker("", 0, (0,)))):
            bed.until_dead(1)
            bed.start(1)
        assert bed.wait_ended() == [None, None]
        bed.history.check()
        assert len(late) >= 2
    assert whole_steps(tmp_path)[-1] == STEPS


def test_a_shard_that_never_reports_costs_one_checkpoint(tmp_path: Path) -> None:
    """The attempt of step 8 ends after `save` seconds with a warning; that of step 16 is written.

    They are many, for a busy disk takes some for each attempt; those that nobody has to wait for are taken off.
    """
    silent = threading.Event()

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if batch >= 12:
            bed.log.until("checkpoint_failed ", "not written within 60 s")
        if batch >= 20:
            bed.log.until_committed(16)
        return by_number(worker, batch, parameters)

    limits = replace(LIMITS, save=60.0)
    with RecoveryBed(tmp_path, presets=PRESETS, limits=limits, checkpoints={"steps": 8, "keep": 9}) as bed:
        link: Any = bed.servers[1]._link
        saved = link.saved

        def swallow(report: Saved) -> None:
            if "-00000008-" in report.folder:
                silent.set()
                lead: Any = bed.servers[0]._coordinator
                lead.job.saving.current.begun -= 100.0
            else:
                saved(report)

        link.saved = swallow
        with training(bed, 2, gradient):
            pass
        assert bed.wait_ended() == [None, None]
        assert silent.is_set()
    assert whole_steps(tmp_path) == [0, 16, 24]
