"""Workers that die and come again while checkpoints are written, and kills of everybody in turn."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from light_worker import Crash, Outcome, run_worker, run_workers
from recovery_bed import RecoveryBed
from saved_jobs import LR, SPECS, by_number, manifest_of, state_of, training, whole_steps

MODES: dict[str, dict[str, Any]] = {"async": {}, "backup": {"mode": "sync", "workers": 2, "backup": 1}}


def waves(batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
    return {name: np.sin(3 * value + np.float32(batch), dtype=np.float32) for name, value in parameters.items()}, 1


@pytest.mark.parametrize("mode", MODES)
def test_b54_checkpoints_go_on_without_worker_0(tmp_path: Path, mode: str) -> None:
    """Fault B54: killed at step 30 and never started again; the others reach the end, which is saved as before."""
    crashed = threading.Event()

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if worker == 0 and bed.history.step >= 30:
            crashed.set()
            raise Crash
        if worker and bed.history.step >= 32:
            # Else the others might reach the end before worker 0 has come that far.
            assert crashed.wait(30)
        for step in (20, 40):
            if bed.history.step >= step + 4:
                bed.log.until_committed(step)
        return by_number(worker, batch, parameters)

    presets = {"learning_rate": LR, "steps": 60, **MODES[mode]}
    with RecoveryBed(tmp_path, presets=presets, checkpoints={"steps": 20, "keep": 9}) as bed:
        with training(bed, 3, gradient, together=False) as workers:
            pass
        bed.end_lease(0)
        assert bed.wait_ended() == [None, None]
        bed.history.check()
    assert [outcome.global_step for outcome in workers.result()[1:]] == [60, 60]
    assert whole_steps(tmp_path) == [0, 20, 40, 60]


def test_b42_a_worker_that_comes_again_resets_nobody(tmp_path: Path) -> None:
    """Fault B42: workers 0 and 1 are killed and started again; no step is undone, the initialisation stays the only
    one, and a number that was lost with them is used later."""
    lost: dict[int, int] = {}

    def lost_are_used() -> bool:
        return len(lost) == 2 and set(lost.values()) <= set(bed.history.applied_batches())

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if worker not in lost and bed.history.step >= 20 * (worker + 1):
            lost[worker] = batch
            raise Crash
        if bed.history.step >= 50 and batch not in lost.values():
            # Whoever has come again, or has not gone yet, may be much slower than the other.
            bed.history.until(lost_are_used)
        return by_number(worker, batch, parameters)

    def lives(number: int) -> Outcome:
        first = run_worker(bed.addresses, SPECS, gradient, index=number)
        assert first.last is None
        bed.end_lease(number)
        return run_worker(bed.addresses, SPECS, gradient, index=number)

    with RecoveryBed(tmp_path, presets={"learning_rate": LR, "steps": 60}, checkpoints={"steps": 10}) as bed:
        outcomes = run_workers(2, lives)
        assert bed.wait_ended() == [None, None]
        bed.history.check()
        assert bed.log.rollbacks() == []
    used = bed.history.applied_batches()
    # At the end one worker may hold a number that the other's last push makes superfluous.
    assert len(set(used)) == len(used) == 60
    assert len(set(range(max(used) + 1)) - set(used)) < 2
    assert set(lost.values()) <= set(used)
    assert [outcome.first_step >= 20 * (outcome.worker + 1) for outcome in outcomes] == [True, True]  # type: ignore[operator]
    assert manifest_of(tmp_path, 60).opened == 1


def test_kills_of_everybody_in_turn_change_no_bit(tmp_path: Path) -> None:
    """Deterministic sync: worker 1, shard 1, the lead, shard 2 and the lead at once; against a run without kills."""
    crashed: list[int] = []

    def disturbed(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if worker == 1 and batch >= 12 and not crashed:
            crashed.append(batch)
            raise Crash
        return waves(batch, parameters)

    def again(number: int) -> Outcome:
        outcome = run_worker(bed.addresses, SPECS, disturbed, index=number, rejoin=True)
        if outcome.last is not None:
            return outcome
        bed.end_lease(number)
        return run_worker(bed.addresses, SPECS, disturbed, index=number, rejoin=True)

    presets = {"optimizer": "adam", "learning_rate": 0.05, "mode": "sync", "workers": 2, "steps": 30}
    job: dict[str, Any] = {"presets": presets, "checkpoints": {"steps": 3}}
    with RecoveryBed(tmp_path / "calm", 3, **job) as bed, training(bed, 2, lambda _, batch, now: waves(batch, now)):
        pass
    with RecoveryBed(tmp_path / "kills", 3, **job) as bed:
        kills = [(10, (1,)), (16, (0,)), (22, (2, 0))]
        for step, victims in kills:
            bed.at_step(step, lambda victims=victims: bed.kill(*victims))  # type: ignore[misc]
        with ThreadPoolExecutor(1) as pool:
            done = pool.submit(run_workers, 2, again)
            for _, victims in kills:
                for victim in sorted(victims):
                    bed.until_dead(victim)
                    bed.start(victim)
            done.result(60)
        assert bed.wait_ended() == [None, None, None]
        bed.history.check_rounds(lambda update: 2)
        bed.log.check_nothing_confirmed_is_lost()
    assert crashed
    assert bed.history.applied_batches() == list(range(60))
    calm, kept = state_of(tmp_path / "calm", 30), state_of(tmp_path / "kills", 30)
    assert {name: array.tobytes() for name, array in calm.items()} == {
        name: array.tobytes() for name, array in kept.items()
    }
