"""kill -9 of shards, the lead and workers, one after the other, while a launched job trains."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest
from commands import Command
from kills import FLAGS, STEPS, VICTIMS, Report, check_nothing_confirmed_is_lost, chosen, launch_flags, run_with_kills
from safetensors.numpy import load_file

pytestmark = pytest.mark.e2e

Tensors = dict[str, npt.NDArray[np.generic]]


def final_tensors(folder: Path) -> Tensors:
    """All that the last checkpoint holds, the optimizer's slots too."""
    parts = sorted((folder / "checkpoints" / f"step-{STEPS:08d}").glob("*.safetensors"))
    assert len(parts) == 2
    return {f"{part.name} {name}": value for part in parts for name, value in load_file(part).items()}


def assert_bit_equal(found: Tensors, wanted: Tensors) -> None:
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        assert found[name].tobytes() == value.tobytes(), f"{name} differs"


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Tensors:
    """The deterministic job's end when nobody is killed."""
    folder = tmp_path_factory.mktemp("undisturbed")
    with Command("psctl", "launch", *launch_flags("sync", folder)) as launch:
        assert launch.wait() == 0, launch.text
    assert launch.summary()["restarts"] == 0
    return final_tensors(folder)


@pytest.mark.timeout(400)
@pytest.mark.parametrize("mode", FLAGS)
def test_b49_b54_any_process_is_killed_and_the_job_reaches_its_step(
    mode: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    """The lead, the other shard and a worker, in an order and at steps drawn by a seed: nine kills over the modes."""
    run_with_kills(mode, tmp_path / "run", chosen(mode, 0))
    if mode == "sync":
        assert_bit_equal(final_tensors(tmp_path / "run"), request.getfixturevalue("undisturbed"))


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("mode", FLAGS)
def test_thirty_kills(mode: str, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    reports: list[Report] = []
    for seed in range(1, 11):
        reports.append(run_with_kills(mode, tmp_path / f"run-{seed}", chosen(mode, seed)))
        if mode == "sync":
            assert_bit_equal(final_tensors(tmp_path / f"run-{seed}"), request.getfixturevalue("undisturbed"))
    kills = [victim for report in reports for victim, _ in report.kills]
    assert len(kills) == 30
    counts = ", ".join(f"{victim} {kills.count(victim)}" for victim in VICTIMS)
    stalls = sorted(report.stall for report in reports)
    restarts = sum(report.restarts for report in reports)
    print(
        f"\n{mode}: {len(reports)} runs of {STEPS} steps, {len(kills)} kills ({counts}), {restarts} restarts;"
        f" longest stall of a run {stalls[0]:.1f} to {stalls[-1]:.1f} s"
    )


@pytest.mark.parametrize(("back", "lost"), [("to_step=20", False), ("to_step=30", False), ("to_step=10", True)])
def test_the_check_finds_a_confirmed_step_that_is_lost(back: str, lost: bool) -> None:
    lines = [
        "10:00:00 psserver 0 checkpoint global_step=10 path=d/step-00000010 seconds=0.1",
        "10:00:01 psserver 0 checkpoint global_step=20 path=d/step-00000020 seconds=0.1",
        f"10:00:02 psserver 0 rollback from_step=25 {back} why=x",
        f"10:00:03 psserver 0 checkpoint global_step={STEPS} path=d seconds=0.1",
    ]
    if lost:
        with pytest.raises(AssertionError, match="step 20 was confirmed"):
            check_nothing_confirmed_is_lost("\n".join(lines))
    else:
        check_nothing_confirmed_is_lost("\n".join(lines))
