"""Links that break, stand still or stay down while there are checkpoints, and shards that are told to end."""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from history import wait_for
from light_worker import run_worker
from recovery_bed import LIMITS, RecoveryBed
from saved_jobs import LR, SPECS, by_number, state_of, summed, training, whole_steps

from grpc_ps.client.shared.errors import JobFailed, PeerUnreachable, PsError
from grpc_ps.psserver.lead.refusal import Refusal

STEPS = 40
PRESETS = {"learning_rate": LR, "steps": STEPS}


@pytest.mark.parametrize("cut", ["uplink", "door 0", "door 1"])
def test_a_link_that_breaks_is_no_reason_to_go_back(tmp_path: Path, cut: str) -> None:
    """The shard has kept its state: it is resumed, and every worker goes on in the life that it has."""
    with RecoveryBed(tmp_path, presets=PRESETS, checkpoints={"steps": 10}) as bed:
        link = {"uplink": bed.uplinks[1], "door 0": bed.doors[0], "door 1": bed.doors[1]}[cut]
        assert link is not None

        def cut_off() -> None:
            before = link.cuts
            link.cut()
            wait_for(lambda: link.cuts > before, "the end of all connections")

        for step in (12, 13, 21, 30):
            bed.at_step(step, cut_off)
        with training(bed) as workers:
            pass
        assert bed.wait_ended() == [None, None]
        bed.history.check()
        assert bed.log.rollbacks() == []
        assert link.cuts >= 4
    assert [outcome.lives for outcome in workers.result()] == [1, 1]
    used = bed.history.applied_batches()
    np.testing.assert_array_equal(state_of(tmp_path, STEPS)["a", ""], summed(used))


def test_a_replacement_waits_for_the_link_of_the_one_before_to_be_down(tmp_path: Path) -> None:
    """Shard 1 stands still, its links open: who comes in its place is fenced off, and taken once they are cut."""
    refused: list[str] = []
    with RecoveryBed(tmp_path, presets=PRESETS, checkpoints={"steps": 10}) as bed:
        old = bed.uplinks[1]
        assert old is not None
        shards = bed.servers[0]._coordinator.job.shards  # type: ignore[union-attr]
        connect = shards.connect

        def noted(*arguments: Any, **options: Any) -> Any:
            try:
                return connect(*arguments, **options)
            except Refusal as refusal:
                refused.append(refusal.reason)
                raise

        shards.connect = noted  # type: ignore[method-assign]

        def stand_still() -> None:
            old.hold()
            bed.doors[1].hold()

        bed.at_step(15, stand_still)
        with training(bed) as workers:
            bed.history.until_step(15)
            bed.replace(1)
            wait_for(lambda: len(refused) >= 3, "the replacement is refused")
            assert set(refused) == {"FENCED"}
            assert bed.log.rollbacks() == []
            for link in (old, bed.doors[1]):
                link.cut()
            bed.doors[1].release()
        assert bed.wait_ended() == [None, None]
        ((_, to_step),) = bed.log.rollbacks()
        # That of step 10 was on its way when shard 1 stood still.
        assert to_step in (0, 10)
        bed.log.check_nothing_confirmed_is_lost()
    assert [outcome.lives for outcome in workers.result()] == [2, 2]


def test_a_lead_that_stays_away_ends_followers_and_workers(tmp_path: Path) -> None:
    """For longer than `recovery`: exit 4, and the lead's address is named."""
    limits = replace(LIMITS, recovery=1.0)
    with RecoveryBed(tmp_path, presets=PRESETS, limits=limits) as bed:
        bed.at_step(10, lambda: bed.kill(0))
        link = bed.servers[1]._link
        assert link is not None
        # The worker waits for as long as the follower: were both shards gone, it might name either.
        patience, link._link_seconds = link._link_seconds, 60.0
        with pytest.raises(PsError) as caught:
            run_worker(bed.addresses, SPECS, by_number, timeout=5.0, rejoin=True)
        link._link_seconds = patience
        error = bed.ended_with(1)
        assert isinstance(error, PeerUnreachable)
        assert bed.uplinks[1] is not None
        assert bed.uplinks[1].address in str(error)
        assert error.exit_code == caught.value.exit_code == 4
        assert bed.doors[0].address in str(caught.value)


def test_b58_a_follower_that_is_told_to_end_is_saved_before_and_started_again(tmp_path: Path) -> None:
    """Its present step is on the disk when it goes, so going back loses nothing; workers go on by themselves."""
    with RecoveryBed(tmp_path, presets=PRESETS) as bed:
        bed.at_step(15, lambda: bed.interrupt(1))
        with training(bed) as workers:
            assert bed.ended_with(1) is None
            left = whole_steps(tmp_path)
            assert left[-1] >= 15
            bed.start(1)
        assert bed.wait_ended() == [None, None]
        bed.history.check()
        ((from_step, to_step),) = bed.log.rollbacks()
        assert from_step == to_step == left[-1]
    assert [outcome.last.exit_code for outcome in workers.result() if outcome.last] == [0, 0]
    used = bed.history.applied_batches()
    np.testing.assert_array_equal(state_of(tmp_path, STEPS)["a", ""], summed(used))


@pytest.mark.parametrize("told", [(0,), (0, 1)])
def test_b58_a_lead_that_is_told_to_end_takes_all_with_it(tmp_path: Path, told: tuple[int, ...]) -> None:
    """The last update is saved, nothing after it; the same commands go on from there, to the same end."""
    seen: list[int] = []

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        seen.append(batch)
        return by_number(worker, batch, parameters)

    with RecoveryBed(tmp_path, presets=PRESETS) as bed:
        bed.at_step(15, lambda: bed.interrupt(*told))
        with training(bed, 2, gradient) as workers:
            pass
        assert bed.ended_with(0) is None
        other = bed.ended_with(1)
        assert other is None if 1 in told else isinstance(other, JobFailed)
        for outcome in workers.result():
            assert outcome.last is not None
            assert outcome.last.exit_code == 4
            assert "was told to end by a signal" in outcome.last.reason
        last = bed.history.step
        first_half = bed.history.applied_batches()
    assert whole_steps(tmp_path) == [0, last]
    with RecoveryBed(tmp_path, presets=PRESETS) as bed:
        with training(bed, 2):
            pass
        assert bed.wait_ended() == [None, None]
        used = first_half + bed.history.applied_batches()
    assert len(set(used)) == len(used) == STEPS
    np.testing.assert_array_equal(state_of(tmp_path, STEPS)["a", ""], summed(used))


def test_a_follower_outlives_a_lead_that_dies_before_anything_has_begun(tmp_path: Path) -> None:
    """Its calls are refused at once, again and again, until the lead is there; no worker has come yet."""
    with RecoveryBed(tmp_path, presets=PRESETS) as bed:
        for times in (1, 2, 3):
            bed.log.until("shard_connected ", count=times)
            bed.kill(0)
            bed.log.until("waiting ", "the lead at", count=times)
            bed.start(0)
        bed.log.until("shard_connected ", count=4)
        with training(bed) as workers:
            assert bed.wait_ended() == [None, None]
        assert {outcome.lives for outcome in workers.result()} == {1}


def test_a_folder_that_was_removed_is_made_again(tmp_path: Path) -> None:
    """The next checkpoint is in it, and said to be; those before are gone, which nobody can help."""
    folder = tmp_path / "checkpoints"
    with RecoveryBed(folder, presets=PRESETS, checkpoints={"steps": 10}) as bed:
        bed.at_step(15, lambda: shutil.rmtree(folder))

        def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
            if batch >= 12:
                # Nobody writes into it while it is removed.
                bed.log.until_committed(10)
            return by_number(worker, batch, parameters)

        with training(bed, gradient=gradient):
            assert bed.wait_ended() == [None, None]
        assert bed.log.of("checkpoint_folder_made_again ")
    assert whole_steps(folder)[-1] == 40
