"""Settings of the whole job, as somebody types them."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import Command, ready, run

pytestmark = pytest.mark.e2e


def test_worker_takes_the_jobs_number_of_threads() -> None:
    """TensorFlow cannot change it once it runs: the worker starts its own program again and says so."""
    with Command("psserver", "--shard", 0, "--port", 0, "--threads", 1) as shard:
        ps = ready(shard)
        flags = ("--ps", ps, "--model", "mnist", "--steps", 30)
        done = run("worker", *flags, "--threads", 2)
        assert done.returncode == 2
        assert "threads" in done.stderr.splitlines()[-1]
        with Command("worker", *flags, "--json") as worker:
            worker.until(r'starting_again threads=1 because="the job has that many"')
            assert (worker.wait(), shard.wait()) == (0, 0), worker.text + shard.text
            assert worker.summary()["global_step"] == 30
            assert worker.text.count("starting_again") == 1


def test_b28_generators_of_two_one_and_no_batches(tmp_path: Path) -> None:
    """Fault B28: three workers with a user's generator end by themselves, as does the shard."""
    model = tmp_path / "tape.py"
    model.write_text(
        """
import numpy as np
from grpc_ps.models import DataBundle
from grpc_ps.models.linear import Linear

class Tape:
    examples = 0
    fingerprint = "tape"

    def batches(self, batch_size, seed, share):
        for number in range(2 - share):
            yield np.ones(batch_size, np.float32), np.ones(batch_size, np.float32)

class Taped(Linear):
    def data(self, directory):
        return DataBundle(train=Tape(), test=None, description="a tape")
"""
    )
    with Command("psserver", "--shard", 0, "--port", 0) as shard:
        flags = ("--ps", ready(shard), "--model", f"{model}:Taped", "--mode", "sync", "--workers", 3, "--json")
        with Command("worker", *flags) as one, Command("worker", *flags) as two, Command("worker", *flags) as three:
            workers = (one, two, three)
            assert [each.wait() for each in workers] == [0, 0, 0], [each.text for each in workers]
            assert shard.wait() == 0
            found = {each.summary()["worker"]: each.summary()["outcomes"] for each in workers}
    assert found == {0: {"APPLIED": 2}, 1: {"APPLIED": 1}, 2: {}}


def test_job_that_ends_by_a_metric() -> None:
    with Command("psserver", "--shard", 0, "--port", 0) as shard:
        flags = ("--ps", ready(shard), "--model", "mnist", "--until", "accuracy=0.9", "--json")
        with Command("worker", *flags) as worker:
            assert (worker.wait(), shard.wait()) == (0, 0), worker.text + shard.text
            assert worker.summary()["reason"].startswith("accuracy 0.9")
