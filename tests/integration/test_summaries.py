"""Summaries of real workers, read back with TensorBoard's own reader."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest
from event_files import check_whole, files, values
from local_cluster import LocalCluster
from real_worker import train_in

from grpc_ps.models.mnist import Mnist


def test_b92_three_workers_write_a_folder_each(tmp_path: Path) -> None:
    """Fault B92: 3 workers with the same --logdir, 50 steps."""
    with LocalCluster(1, presets={"steps": 50, "eval_every": 20}) as cluster:
        trained = train_in(cluster, [partial(Mnist, hidden=5)] * 3, logdir=tmp_path, summary_every=5)
        assert [one.error for one in trained] == [None] * 3
    whole = check_whole(tmp_path)
    # A worker whose first push comes after the end has no step of its own.
    taught = {one.summary["worker"]: one.summary for one in trained if one.summary["local_steps"]}
    assert set(whole) == {"job", "eval", *(f"worker-{worker}" for worker in taught)}
    for worker, summary in taught.items():
        steps = whole[f"worker-{worker}"]["loss"]
        assert 1 <= steps[0] <= steps[-1] == summary["global_step"] == 50
        applied = values(tmp_path / f"worker-{worker}", "pushes/applied")
        assert applied[50] == summary["outcomes"].get("APPLIED", 0)
        assert len(files(tmp_path / f"worker-{worker}")) == 1
    assert values(tmp_path / "job", "pushes/applied")[50] == 50
    assert values(tmp_path / "job", "learning_rate")[50] == pytest.approx(0.01)
    metrics = next(one.summary["metrics"] for one in trained if one.summary["metrics"])
    assert values(tmp_path / "eval", "accuracy")[50] == pytest.approx(metrics["accuracy"])
