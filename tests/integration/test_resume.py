"""A job that had stopped goes on from its newest checkpoint: with the same bits, and with other limits if told so."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from light_worker import run_worker
from recovery_bed import RecoveryBed
from saved_jobs import LR, SPECS, manifest_of, state_of, summed, training, whole_steps

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import CheckpointError, Mismatch, UsageError

WORKERS = 2
RULES: dict[str, dict[str, Any]] = {
    "momentum": {"optimizer": "momentum"},
    "adagrad": {"optimizer": "adagrad"},
    "adam": {"optimizer": "adam"},
    "rmsprop": {"optimizer": "rmsprop", "momentum": 0.5},
    "ftrl": {"optimizer": "ftrl", "l1": 0.001, "l2": 0.01},
    "schedule": {"optimizer": "momentum", "schedule": "cosine:20", "warmup_steps": 14},
    "clipped": {"optimizer": "adam", "global_clip_norm": 0.5},
    "bfloat16": {"optimizer": "adam", "push_dtype": "bfloat16", "pull_dtype": "bfloat16"},
    "topk": {"optimizer": "momentum", "compress": "topk:0.1"},
    "averaged": {"optimizer": "momentum", "moving_average": 0.9},
}
SLOTS = {
    "momentum": 1,
    "adagrad": 1,
    "adam": 2,
    "rmsprop": 2,
    "ftrl": 2,
    "schedule": 1,
    "clipped": 2,
    "bfloat16": 4,
    "topk": 3,
    "averaged": 2,
}


def waves(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
    """A gradient that depends on every bit of the values, and on the batch."""
    return {name: np.sin(3 * value + np.float32(batch), dtype=np.float32) for name, value in parameters.items()}, 1


def presets(rule: str, steps: int) -> dict[str, Any]:
    return {"learning_rate": 0.05, **RULES[rule], "mode": "sync", "workers": WORKERS, "steps": steps}


def train(directory: Path, rule: str, steps: int, *, shards: int = 2, each_from: int | None = None) -> RecoveryBed:
    """Trains up to `steps`, from wherever the folder's newest checkpoint is; all end well.

    Saves the last step, or each one after `each_from`: then nobody goes on before it is saved.
    """

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if each_from is not None and batch // WORKERS > each_from:
            bed.log.until_committed(batch // WORKERS)
        return waves(worker, batch, parameters)

    kept = {"steps": None if each_from is None else 1, "keep": 100}
    with RecoveryBed(directory, shards, presets=presets(rule, steps), checkpoints=kept) as bed:
        with training(bed, WORKERS, gradient):
            pass
        assert bed.wait_ended() == [None] * shards
    return bed


def check_equal(one: Path, other: Path, step: int) -> None:
    """Values and slots of a step are the same, bit by bit, and so is what else the job is made of."""
    first, second = state_of(one, step), state_of(other, step)
    assert first.keys() == second.keys()
    for name, array in first.items():
        assert array.tobytes() == second[name].tobytes(), name
    manifests = manifest_of(one, step), manifest_of(other, step)
    for name in ("global_step", "cursor", "returned", "learning_rate_factor", "paused", "parameters"):
        assert getattr(manifests[0], name) == getattr(manifests[1], name), name


@pytest.mark.parametrize("rule", RULES)
def test_b76_ten_steps_and_ten_more_are_twenty(tmp_path: Path, rule: str) -> None:
    """Fault B76: values, slots, Adam's count of steps, the place in the schedule and the data."""
    train(tmp_path / "straight", rule, 20)
    train(tmp_path / "halves", rule, 10)
    bed = train(tmp_path / "halves", rule, 20)
    assert bed.log.of("resumed ", "global_step=10")
    assert [update.step for update in bed.history.updates[0]] == list(range(11, 21))
    assert bed.history.applied_batches() == list(range(20, 40))
    check_equal(tmp_path / "straight", tmp_path / "halves", 20)
    names = {slot for _, slot in state_of(tmp_path / "halves", 20)} - {""}
    assert len(names) == SLOTS[rule]


@pytest.mark.parametrize("rule", ["adam", "bfloat16", "topk"])
@pytest.mark.parametrize("shards", [1, 3, 5])
def test_saved_with_two_shards_and_restored_with_others(tmp_path: Path, shards: int, rule: str) -> None:
    """What is read is what was saved, and every step after it is that of the undisturbed run: values and slots."""
    train(tmp_path / "straight", rule, 14, each_from=0)
    train(tmp_path / "other", rule, 10)
    bed = train(tmp_path / "other", rule, 14, shards=shards, each_from=10)
    for step in range(11, 15):
        check_equal(tmp_path / "straight", tmp_path / "other", step)
    assert manifest_of(tmp_path / "other", 14).shard_count == shards
    bed.history.check_rounds_after(10, WORKERS)


def test_b76_a_factor_that_was_set_and_a_pause_are_kept(tmp_path: Path) -> None:
    """The factor holds after the restart; a job that was saved in a pause waits for its end."""
    done = []

    def halved(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        # The round of this batch cannot close before, so it is the first with the factor.
        if batch == 8:
            with PSClient(beds[-1].addresses) as client:
                client.set(learning_rate_factor=0.5)
        if batch == 16 and not done:
            done.append(batch)
            with PSClient(beds[-1].addresses) as client:
                client.set(paused=True)
        return waves(worker, batch, parameters)

    beds: list[RecoveryBed] = []
    saved = {"keep": 100}
    job = presets("momentum", 12)
    with RecoveryBed(tmp_path / "one", presets=job, checkpoints=saved) as bed:
        beds.append(bed)
        with training(bed, WORKERS, halved):
            bed.history.until_step(9)
            with PSClient(bed.addresses) as client:
                assert client.checkpoint().global_step == 9
                bed.restart(0, 1)
                bed.log.until("joined ", count=4)
                assert client.status().paused
                assert bed.history.step == 9
                assert client.set(paused=False)
        assert bed.wait_ended() == [None, None]
        assert bed.log.of("resumed ", "global_step=9")
    done.append(16)
    with RecoveryBed(tmp_path / "two", presets=job, checkpoints=saved) as bed:
        beds.append(bed)
        with training(bed, WORKERS, halved):
            pass
    check_equal(tmp_path / "one", tmp_path / "two", 12)
    assert manifest_of(tmp_path / "one", 12).learning_rate_factor == 0.5
    assert manifest_of(tmp_path / "one", 0).learning_rate_factor == 1.0


def more(directory: Path, stated: Mapping[str, Any], *, shards: int = 2, **config: Any) -> tuple[RecoveryBed, Any]:
    """One worker goes on in async with what it states."""
    with RecoveryBed(directory, shards, presets={"learning_rate": LR}, **config) as bed:
        with training(bed, 1, stated=stated) as workers:
            pass
        assert bed.wait_ended() == [None] * shards
    return bed, workers.result()[0]


def test_b57_a_job_on_disk_goes_on_to_the_steps_that_are_stated(tmp_path: Path) -> None:
    """30, then the same again, then fewer, then 50: nothing, nothing, and exactly twenty more updates."""
    more(tmp_path, {"steps": 30})
    for steps in (30, 20):
        bed, outcome = more(tmp_path, {"steps": steps})
        assert (outcome.sent, outcome.global_step, bed.history.updates[0]) == (0, 30, [])
    assert whole_steps(tmp_path) == [0, 30]
    bed, outcome = more(tmp_path, {"steps": 50})
    assert [update.step for update in bed.history.updates[0]] == list(range(31, 51))
    np.testing.assert_array_equal(outcome.parameters["a"], summed(range(50)))
    # Without any statement the job is what it was.
    bed, outcome = more(tmp_path, {})
    assert (outcome.sent, outcome.global_step) == (0, 50)


@pytest.mark.parametrize("stated", [{"optimizer": "adam"}, {"batch_size": 7}, {"seed": 5}, {"clip_value": 0.5}])
def test_b76_what_is_in_the_state_itself_cannot_be_stated_anew(tmp_path: Path, stated: dict[str, Any]) -> None:
    """Exit 6 by the worker that states it, or by shard 0; both name the setting, both values, and the way out."""
    more(tmp_path, {"steps": 3})
    ((name, value),) = stated.items()
    with RecoveryBed(tmp_path, presets={"learning_rate": LR}) as bed:
        with pytest.raises(CheckpointError, match=f"{name}: this worker has {value!r}, .*--init-from"):
            run_worker(bed.addresses, SPECS, waves, stated=stated)
        assert bed.history.updates[0] == []
    with (
        pytest.raises(CheckpointError, match=f"{name}: shard 0 has {value!r}, .*--init-from"),
        RecoveryBed(tmp_path, presets={"learning_rate": LR, **stated}),
    ):
        raise AssertionError("the lead has started")
    assert whole_steps(tmp_path) == [0, 3]


def test_b14_another_model_is_refused_by_a_job_on_disk(tmp_path: Path) -> None:
    """Its first parameter that differs is named, and what is there stays."""
    more(tmp_path, {"steps": 3})
    says = f"parameter 'c'.*; the job goes on from {tmp_path}: another model needs another --checkpoint-dir$"
    with RecoveryBed(tmp_path, presets={"learning_rate": LR}) as bed, pytest.raises(Mismatch, match=says):
        run_worker(bed.addresses, SPECS[:2], waves)
    assert whole_steps(tmp_path) == [0, 3]


def test_b76_other_limits_may_be_preset_anew(tmp_path: Path) -> None:
    """The rate and the mode are of the lead alone; impossible ones are refused at the start, with the exit code 2."""
    more(tmp_path, {"steps": 3})
    sync = {"mode": "sync", "workers": 2, "learning_rate": 2 * LR, "steps": 5}
    with pytest.raises(UsageError, match="min_workers"), RecoveryBed(tmp_path, presets={**sync, "min_workers": 3}):
        raise AssertionError("the lead has started")
    with RecoveryBed(tmp_path, presets=sync) as bed, training(bed, 2) as workers:
        pass
    bed.history.check_rounds_after(3, 2)
    # Batches 0 to 2 by LR; then the means of 3 and 4, 5 and 6 by twice as much.
    np.testing.assert_array_equal(workers.result()[0].parameters["b"], summed((0, 1, 2, 3, 4, 5, 6)))
