"""Shards that stay when a job is done (--keep-alive): the same again is done at once, more is trained exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from light_worker import Outcome, run_worker, run_workers
from recovery_bed import RecoveryBed
from saved_jobs import LR, SPECS, by_number, summed, whole_steps

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import Mismatch, PsError

MODES: dict[str, dict[str, Any]] = {"async": {}, "sync": {"mode": "sync", "workers": 2}}


def steps(bed: RecoveryBed) -> list[int]:
    return [update.step for update in bed.history.updates[0]]


@pytest.mark.parametrize("mode", MODES)
def test_b57_a_worker_that_comes_to_a_job_that_is_done(tmp_path: Path, mode: str) -> None:
    """Fault B57: 20 steps; one worker for 20 again, and without a number; two for 30; shard 1 dies; two for 35."""

    def train(count: int, stated: dict[str, Any]) -> list[Outcome]:
        return run_workers(
            count, lambda number: run_worker(bed.addresses, SPECS, by_number, index=number, stated=stated, rejoin=True)
        )

    with RecoveryBed(tmp_path, presets={"learning_rate": LR, **MODES[mode]}, keep_alive=True) as bed:
        train(2, {"steps": 20})
        with pytest.raises(Mismatch, match="steps: the job has 20, this worker has 10"):
            train(1, {"steps": 10})
        stated: dict[str, Any]
        for stated in ({"steps": 20}, {}):
            (again,) = train(1, stated)
            assert again.last is not None
            assert (again.sent, again.global_step, again.last.exit_code) == (0, 20, 0)
            assert steps(bed) == list(range(1, 21))
        train(2, {"steps": 30})
        assert steps(bed) == list(range(1, 31))
        assert whole_steps(tmp_path) == [0, 20, 30]
        bed.restart(1)
        bed.log.until("rollback ", "to_step=30")
        outcomes = train(2, {"steps": 35})
        assert steps(bed) == list(range(1, 36))
        bed.history.check()
        used = bed.history.applied_batches()
        shares = [batch / 2 for batch in used] if mode == "sync" else used
        for outcome in outcomes:
            np.testing.assert_array_equal(outcome.parameters["a"], summed(shares))
        assert not any(future.done() for future in bed.ended)
        with PSClient(bed.addresses) as client:
            assert client.stop() == 35
        assert bed.wait_ended() == [None, None]
    assert whole_steps(tmp_path)[-1] == 35


def test_b57_what_is_in_the_state_cannot_be_changed_by_going_on(tmp_path: Path) -> None:
    """Another optimizer is refused, and the job is as it was."""
    with RecoveryBed(tmp_path, presets={"learning_rate": LR}, keep_alive=True) as bed:
        run_worker(bed.addresses, SPECS, by_number, stated={"steps": 5})
        with pytest.raises(PsError, match="optimizer"):
            run_worker(bed.addresses, SPECS, by_number, stated={"steps": 9, "optimizer": "adam"})
        assert steps(bed) == [1, 2, 3, 4, 5]
        run_worker(bed.addresses, SPECS, by_number, stated={"steps": 9})
        assert steps(bed) == list(range(1, 10))
