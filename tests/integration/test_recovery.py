"""A shard is killed: all go back to the newest checkpoint, workers come again, and nothing is applied twice."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from breaking import Breaker
from history import wait_for
from recovery_bed import RecoveryBed
from saved_jobs import LR, by_number, manifest_of, state_of, summed, training, whole_steps

from grpc_ps.client import PSClient
from grpc_ps.client.shared.errors import PsError
from grpc_ps.psserver.lead.log import Entry, Open

STEPS = 60
PRESETS = {"learning_rate": LR, "steps": STEPS}


def paced(bed: RecoveryBed, every: int, batches: int = 1) -> Callable[..., Any]:
    """A gradient that waits for the checkpoint of every `every` steps of so many batches: none of them is left out."""

    def gradient(worker: int, number: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if (step := (number // batches - 4) // every * every) > 0:
            bed.log.until_committed(step)
        return by_number(worker, number, parameters)

    return gradient


def check_end(bed: RecoveryBed, outcomes: list[Any], steps: int = STEPS) -> None:
    """Every worker has seen the end, and the values are those of the history that counts, batch by batch."""
    assert bed.wait_ended() == [None] * len(bed.servers)
    bed.history.check()
    bed.log.check_nothing_confirmed_is_lost()
    used = bed.history.applied_batches()
    assert [update.step for update in bed.history.updates[0]] == list(range(1, steps + 1))
    # Whoever is slow at the end has a number that is not used any more; else none is left out.
    assert len(set(range(max(used) + 1)) - set(used)) < len(outcomes)
    for outcome in outcomes:
        assert outcome.last is not None
        assert outcome.last.global_step == steps
        for value in outcome.parameters.values():
            np.testing.assert_array_equal(value, summed(used))
    assert whole_steps(bed.directory)[-1] == steps


@pytest.mark.parametrize("victim", [0, 1])
def test_b49_a_killed_shard_takes_all_back_to_the_newest_checkpoint(tmp_path: Path, victim: int) -> None:
    """Saved at 40, killed while the update to step 50 is carried out: from there back to 40, and on to 60."""
    with RecoveryBed(tmp_path, presets=PRESETS, checkpoints={"steps": 20}) as bed:
        first = bed.servers[0]._replay.identity.generation
        bed.at_step(50, lambda: bed.kill(victim))
        with training(bed, gradient=paced(bed, 20)) as workers:
            bed.until_dead(victim)
            bed.start(victim)
        check_end(bed, workers.result())
        assert [outcome.lives for outcome in workers.result()] == [2, 2]
        assert bed.servers[0]._replay.identity.generation != first
        if victim:
            ((from_step, to_step),) = bed.log.rollbacks()
            assert from_step in (50, 51)
            assert to_step == 40
        else:
            assert bed.log.of("resumed ", "global_step=40")


@pytest.mark.parametrize("victim", [0, 1])
def test_b49_killed_before_there_is_a_checkpoint(tmp_path: Path, victim: int) -> None:
    """Right after the initialisation: nothing was done yet, so the job is opened once more, under its number."""
    struck = []

    def strike(shard: int, entry: Entry) -> None:
        if isinstance(entry, Open) and not struck:
            struck.append(entry)
            bed.kill(victim)

    with RecoveryBed(tmp_path, presets=PRESETS) as bed:
        run = bed.servers[0]._replay.identity.run
        bed.history.hooks.append(strike)
        with training(bed) as workers:
            bed.until_dead(victim)
            bed.start(victim)
        check_end(bed, workers.result())
        assert bed.servers[0]._replay.identity.run == run
        assert len(bed.history.of(Open)) == 2
    assert whole_steps(tmp_path) == [0, STEPS]


@pytest.mark.parametrize("victim", [0, 1])
def test_b49_killed_before_the_first_step(tmp_path: Path, victim: int) -> None:
    """Step 0 is saved before step 1 is made: the values are those of the first initialisation."""
    with RecoveryBed(tmp_path, presets=PRESETS) as bed:
        bed.at_step(1, lambda: bed.kill(victim))
        with training(bed) as workers:
            bed.until_dead(victim)
            bed.start(victim)
        check_end(bed, workers.result())
    assert manifest_of(tmp_path, STEPS).opened == 1


@pytest.mark.parametrize(
    ("stage", "victim"),
    [("header", 0), ("half", 1), ("whole", 0), ("whole", 1), ("applied", 1), ("answered", 0), ("answered", 1)],
)
def test_b49_killed_at_every_stage_of_a_push_and_a_pull(tmp_path: Path, stage: str, victim: int) -> None:
    """The gradient that is under way is dropped or was applied, never twice; answers are cut off in their middle."""
    job = {**PRESETS, "steps": 30}
    with RecoveryBed(tmp_path, presets=job, checkpoints={"steps": 10}, chunk_bytes=64) as bed:
        breaker = Breaker(bed, victim, lambda: bed.kill(victim), worker=1)
        bed.at_step(25, lambda: breaker.arm(stage))
        by_pace = paced(bed, 10)

        def gradient(worker: int, number: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
            if worker == 0 and bed.history.step >= 25:
                # Else it might make the last steps alone, before worker 1 pushes again.
                wait_for(lambda: bool(breaker.fired), "the kill")
            return by_pace(worker, number, parameters)

        with training(bed, gradient=gradient) as workers:
            bed.until_dead(victim)
            bed.start(victim)
        check_end(bed, workers.result(), 30)
    assert breaker.fired == [stage]


def test_b49_readers_see_one_step_or_an_error(tmp_path: Path) -> None:
    """Shards are killed in turn while somebody reads again and again."""
    over = threading.Event()
    steps: list[int] = []

    def read() -> None:
        with PSClient(bed.addresses, timeout=3.0) as client:
            while not over.is_set():
                try:
                    pulled = client.pull()
                except PsError:
                    continue
                for value in pulled.values.values():
                    np.testing.assert_array_equal(value, pulled.values["a"])
                steps.append(pulled.global_step)

    def gradient(worker: int, number: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        if number % 5 == 0:
            # Somebody has read since, however slowly. What is read next may be on its way already.
            enough = len(steps) + 2
            wait_for(lambda: len(steps) >= enough, "two readings")
        return by_number(worker, number, parameters)

    with RecoveryBed(tmp_path, presets=PRESETS, checkpoints={"steps": 10}) as bed:
        for step, victim in ((15, 1), (30, 0), (45, 1)):
            bed.at_step(step, lambda victim=victim: bed.kill(victim))  # type: ignore[misc]
        reader = threading.Thread(target=read)
        reader.start()
        with training(bed, gradient=gradient) as workers:
            for victim in (1, 0, 1):
                bed.until_dead(victim)
                bed.start(victim)
        over.set()
        reader.join(30)
        check_end(bed, workers.result())
    assert not reader.is_alive()
    assert len(set(steps)) > 3


@pytest.mark.parametrize("mode", [{"max_staleness": 1}, {"mode": "sync", "workers": 2, "backup": 1}])
def test_b49_other_modes(tmp_path: Path, mode: dict[str, Any]) -> None:
    """A kill under a bound of staleness, and with a backup worker: the rules of the mode hold along the history."""
    with RecoveryBed(tmp_path, presets={**PRESETS, **mode}, checkpoints={"steps": 10}) as bed:
        bed.at_step(25, lambda: bed.kill(1))
        with training(bed, 3, paced(bed, 10, 2 if "mode" in mode else 1)):
            bed.until_dead(1)
            bed.start(1)
        assert bed.wait_ended() == [None, None]
        if "mode" in mode:
            bed.history.check_rounds(lambda update: 2)
        else:
            bed.history.check()
        ((_, to_step),) = bed.log.rollbacks()
        assert to_step == 20
        assert bed.history.step == STEPS
        used = bed.history.applied_batches()
    # In a mean of two the numbers count by half.
    shares = [batch / 2 if "mode" in mode else batch for batch in used]
    np.testing.assert_array_equal(state_of(tmp_path, STEPS)["a", ""], summed(shares))


def test_every_example_is_used_once_an_epoch(tmp_path: Path) -> None:
    """3 workers, 100 examples, 2 epochs, batches of 7; shard 1 and the lead are killed."""
    job = {"learning_rate": LR, "epochs": 2, "batch_size": 7}

    def gradient(worker: int, batch: int, parameters: Mapping[str, Any]) -> tuple[dict[str, np.ndarray], int]:
        return by_number(worker, batch, parameters)[0], 7 if batch % 15 < 14 else 2

    with RecoveryBed(tmp_path, presets=job, checkpoints={"steps": 4}) as bed:
        bed.at_step(10, lambda: bed.kill(1))
        bed.at_step(22, lambda: bed.kill(0))
        with training(bed, 3, gradient, stated={"examples": 100}) as workers:
            for victim in (1, 0):
                bed.until_dead(victim)
                bed.start(victim)
        check_end(bed, workers.result(), 30)
        assert sorted(bed.history.applied_batches()) == list(range(30))
        used = [used for update in bed.history.updates[0] for used in update.pushes]
    for epoch in (0, 1):
        assert sum(one.examples for one in used if one.batch // 15 == epoch) == 100
