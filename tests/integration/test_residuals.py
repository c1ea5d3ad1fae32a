"""What workers keep back: saved as of one position, given back after a rollback, and waited for by nobody in vain."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from breaking import Breaker
from history import wait_for
from light_worker import abandon
from recovery_bed import LIMITS, RecoveryBed
from saved_jobs import SPECS, state_of, training

from grpc_ps.client import PSClient, TrainingSession
from grpc_ps.client.shared import wire_form
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.lead.log import Entry, Save

FORMS: dict[str, dict[str, Any]] = {
    "bfloat16": {"push_dtype": "bfloat16", "pull_dtype": "bfloat16"},
    "topk": {"compress": "topk:0.05"},
}
WORKERS, STEPS = 2, 12
State = dict[tuple[str, str], bytes]
Disturb = Callable[[RecoveryBed], None]


def waves(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
    """A gradient that depends on every bit of the values, and on the batch."""
    return {name: np.sin(3 * value + np.float32(batch), dtype=np.float32) for name, value in parameters.items()}, 1


def presets(form: str, **more: Any) -> dict[str, Any]:
    rounds = {"mode": "sync", "workers": WORKERS, "steps": STEPS}
    return {"optimizer": "adam", "learning_rate": 0.05, **FORMS[form], **rounds, **more}


@pytest.fixture(scope="module", autouse=True)
def no_block_is_small() -> Iterator[None]:
    """Of the few elements here some are kept back, too."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(wire_form, "SMALL_BLOCK", 0)
        yield


def nothing(bed: RecoveryBed) -> None:
    pass


def trained(directory: Path, form: str, before: Disturb = nothing, during: Disturb = nothing) -> State:
    """Trains, saving step 4 and others; returns all that the last checkpoint has, as bytes."""

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if batch // WORKERS == 6:
            bed.log.until_committed(4)
        return waves(worker, batch, parameters)

    with RecoveryBed(directory, presets=presets(form), checkpoints={"steps": 4, "keep": 10}) as bed:
        before(bed)
        with training(bed, WORKERS, gradient):
            during(bed)
        assert bed.wait_ended() == [None, None]
        assert not bed.log.of("residuals_missing")
    bed.history.check_rounds_after(0, WORKERS)
    return {name: array.tobytes() for name, array in state_of(directory, STEPS).items()}


@pytest.fixture(scope="module", params=FORMS)
def undisturbed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, State]:
    """A form, and what its job comes to when nothing happens."""
    state = trained(tmp_path_factory.mktemp("undisturbed"), request.param)
    assert {slot for _, slot in state} == {"", "m", "v", "residual.0", "residual.1"}
    kept = [np.frombuffer(data, np.float32) for (_, slot), data in state.items() if slot.startswith("residual")]
    assert all(np.any(array) for array in kept)
    return request.param, state


@pytest.mark.parametrize("victim", [0, 1])
def test_b49_a_shard_that_is_killed_changes_no_bit(tmp_path: Path, undisturbed: tuple[str, State], victim: int) -> None:
    """All go back to a checkpoint, and every worker keeps back again what it did there."""
    form, state = undisturbed

    def start(bed: RecoveryBed) -> None:
        bed.until_dead(victim)
        bed.start(victim)

    found = trained(tmp_path, form, lambda bed: bed.at_step(7, lambda: bed.kill(victim)), start)
    assert found == state


@pytest.mark.parametrize("stage", ["half", "whole", "answered"])
def test_a_link_that_breaks_changes_no_bit(tmp_path: Path, undisturbed: tuple[str, State], stage: str) -> None:
    """A push has the same bytes when it is sent again."""
    form, state = undisturbed
    breakers = []

    def break_twice(bed: RecoveryBed) -> None:
        breakers.append(Breaker(bed, 1, bed.doors[1].cut, worker=1))
        for step in (5, 9):
            bed.at_step(step, lambda: breakers[0].arm(stage), shard=1)

    assert trained(tmp_path, form, break_twice) == state
    assert breakers[0].fired == [stage, stage]


@pytest.mark.parametrize("shard", [0, 1])
def test_a_link_that_breaks_when_what_is_kept_is_asked_for(
    tmp_path: Path, undisturbed: tuple[str, State], shard: int
) -> None:
    """It is asked for again with `attached`, also at the end, when there is nothing else to say."""
    form, state = undisturbed
    cut = []

    def cut_at_saves(bed: RecoveryBed) -> None:
        def hook(where: int, entry: Entry) -> None:
            if where == shard and isinstance(entry, Save) and entry.step:
                cut.append(entry.step)
                bed.doors[shard].cut()

        bed.history.hooks.append(hook)

    assert trained(tmp_path, form, cut_at_saves) == state
    assert cut == [4, 8, 12]


ONES = {spec.name: np.ones(spec.shape, np.float32) for spec in SPECS}


@contextmanager
def two_workers(
    directory: Path, limits: Limits = LIMITS, **config: Any
) -> Iterator[tuple[RecoveryBed, TrainingSession, TrainingSession]]:
    """An asynchronous job in which both have pushed once, and hold a number."""
    job = {"mode": "async", "optimizer": "sgd", "steps": 10_000, **FORMS["topk"]}
    with (
        RecoveryBed(directory, presets=job, limits=limits, **config) as bed,
        PSClient(bed.addresses, timeout=20) as one,
        PSClient(bed.addresses, timeout=20) as other,
    ):
        first = one.join("test", SPECS)
        first.open({spec.name: np.zeros(spec.shape, np.float32) for spec in SPECS})
        second = other.join("test", SPECS)
        for session in (first, second):
            session.begin()
            session.send(ONES, 1)
            session.wait()
        yield bed, first, second


def checkpoint(bed: RecoveryBed, busy: TrainingSession, meanwhile: Callable[[], object] = lambda: None) -> int:
    """Saves the job, while a worker goes on; `meanwhile` is called once all shards have been told to save."""

    def beside() -> None:
        wait_for(lambda: len(bed.history.of(Save, 1)) == 2, "the entry behind that of step 0")
        meanwhile()

    with PSClient(bed.addresses, timeout=20) as client, ThreadPoolExecutor(2) as pool:
        saving, besides = pool.submit(lambda: client.checkpoint().global_step), pool.submit(beside)
        while not saving.done():
            busy.send(ONES, 1)
            busy.wait()
        besides.result()
        return saving.result()


def test_a_worker_that_is_gone_is_not_waited_for(tmp_path: Path) -> None:
    """Its lease ends, and the checkpoint is written without it."""
    with two_workers(tmp_path) as (bed, first, second):
        abandon(second)
        step = checkpoint(bed, first, lambda: bed.end_lease(1))
        assert not bed.log.of("residuals_missing")
        assert {slot for _, slot in state_of(tmp_path, step)} == {"", "residual.0"}


def test_a_worker_that_does_not_answer_is_left_out_with_a_warning(tmp_path: Path) -> None:
    """It beats, and computes for longer than anybody waits."""
    with two_workers(tmp_path, replace(LIMITS, residuals=3.0)) as (bed, first, _):
        step = checkpoint(bed, first)
        assert len(bed.log.of("residuals_missing workers=1 ")) == 2
        assert {slot for _, slot in state_of(tmp_path, step)} == {"", "residual.0"}


def test_a_lead_that_is_told_to_end_saves_the_job_without_those_who_do_not_answer(tmp_path: Path) -> None:
    """Both compute for longer than its grace time; the other shard, which nobody has told, waits no longer either."""
    limits = replace(LIMITS, residuals=3600.0, last_residuals=0.2)
    with two_workers(tmp_path, limits, grace_seconds=20.0) as (bed, _, _):
        bed._loop.call_soon_threadsafe(bed.servers[0].interrupt)
        wait_for(lambda: bool(bed.log.of("stopped ")), "the end")
        assert len(bed.log.of("residuals_missing workers=0,1 ")) == 2
    assert {slot for _, slot in state_of(tmp_path, 2)} == {""}


def test_what_is_kept_is_as_of_the_checkpoint_whatever_was_pushed_since(tmp_path: Path) -> None:
    """A push that is on its way when the checkpoint is made is not in it, nor is what it leaves."""
    with two_workers(tmp_path) as (bed, first, second):
        kept = {name: array.copy() for name, array in second._exchange._keeping.feedback.old.items()}
        with PSClient(bed.addresses, timeout=20) as client, ThreadPoolExecutor(1) as pool:
            saving = pool.submit(lambda: client.checkpoint().global_step)
            wait_for(lambda: len(bed.history.of(Save, 1)) == 2, "the entry behind that of step 0")
            # Both have been asked; they answer behind the next push, which comes after the checkpoint.
            for session in (first, second):
                session.send(ONES, 1)
                session.wait()
            step = saving.result(20)
        state = state_of(tmp_path, step)
        for spec in SPECS:
            assert np.array_equal(state[spec.name, "residual.1"], kept[spec.name])
            assert not np.array_equal(second._exchange._keeping.feedback.old[spec.name], kept[spec.name])
