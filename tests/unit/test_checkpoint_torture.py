"""A process that saves is killed at every point: what is left is always a whole checkpoint."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import saving_process
from checkpoints import state

from grpc_ps.client.shared.checkpoint import Checkpoint
from grpc_ps.client.shared.checkpoint_folder import CheckpointFolder

# Every named point, and which of the two processes comes to it.
PART = ("part.open", "part.write", "part.sync", "part.rename", "part.done")
COMMIT = (
    "commit.verify",
    "manifest.write",
    "manifest.sync",
    "manifest.rename",
    "commit.rename",
    "commit.done",
    "prune",
)
KILLS = [("lead" if index % 2 else "shard", point) for index, point in enumerate(PART)] + [
    ("lead", point) for point in COMMIT
]
# A whole save takes some tens of milliseconds.
LATEST_KILL = 60_000


def live(folder: Path, steps: int, who: str, point: str, nth: int) -> tuple[int, list[int], str]:
    """One life of the job: exit code of the lead, the steps that it has confirmed, and what it said."""
    command = [sys.executable, saving_process.__file__, *map(str, (folder, steps, who, point, nth))]
    # Ends when both processes have closed their output.
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    return done.returncode, [int(line) for line in done.stdout.split()], done.stderr


def check(folder: Path, confirmed: int) -> int:
    """The newest checkpoint is whole, no older than what was confirmed, and of one step, which is returned."""
    newest = CheckpointFolder(folder).newest(lambda text: pytest.fail(text))
    if newest is None:
        assert confirmed == 0
        return 0
    assert newest.step in (confirmed, confirmed + 1)
    assert_is_of_one_step(newest)
    return newest.step


def assert_is_of_one_step(found: Checkpoint) -> None:
    with found.open() as reader:
        for (parameter, slot), array in state(saving_process.SPECS, found.step).items():
            out = array.copy()
            out.view("u1")[:] = 0
            reader.read(parameter, slot, 0, array.size, out)
            assert out.tobytes() == array.tobytes()


def torture(folder: Path, kills: list[tuple[str, str, int]]) -> None:
    """Lives that end with a kill each, and at last one that does not."""
    newest = 0
    for who, point, nth in kills:
        code, confirmed, said = live(folder, 1 << 20, who, point, nth)
        expected = {"shard": 1, "lead": -signal.SIGALRM if point == "timer" else -signal.SIGKILL}
        assert code == expected[who], said
        assert who == "lead" or "the other shard is gone" in said
        assert confirmed == list(range(newest + 1, newest + 1 + len(confirmed)))
        newest = check(folder, newest + len(confirmed))
    code, confirmed, said = live(folder, 3, "lead", "nowhere", 1)
    assert (code, confirmed) == (0, [newest + 1, newest + 2, newest + 3]), said
    assert "checkpoint_lock_taken_over" in said
    check(folder, newest + 3)
    assert sorted(path.name for path in folder.iterdir()) == [
        "lock.json",
        *(f"step-{newest + step:08d}" for step in (2, 3)),
    ]


def test_b72_killed_once_at_each_named_point(tmp_path):
    torture(tmp_path, [(who, point, index % 3 + 1) for index, (who, point) in enumerate(KILLS)])


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_b72_killed_at_forty_seeded_moments_and_at_each_point_of_both(tmp_path):
    moments = random.Random(72)
    kills = [(moments.choice(["lead", "shard"]), "timer", moments.randrange(1, LATEST_KILL)) for _ in range(40)]
    kills += [(who, point, nth) for who in ("lead", "shard") for point in PART for nth in (1, 2, 5)]
    kills += [("lead", point, nth) for point in COMMIT for nth in (1, 4)]
    moments.shuffle(kills)
    torture(tmp_path, kills)
