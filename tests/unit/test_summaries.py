"""What is written for TensorBoard, and when: a session that is played, and a lead that says what a test wants."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from event_files import check_whole, recorded, rows, times, values
from history import wait_for
from shard_log import ShardLog

from grpc_ps.client import ClusterStatus, PsError, Reply
from grpc_ps.client.shared.errors import PeerLost
from grpc_ps.client.status import CheckpointStatus, WorkerStatus, WorkerTimes
from grpc_ps.worker.event_folder import EventFolder, FolderTaken, Timeline
from grpc_ps.worker.figures import Point, of_evaluation, of_job, of_worker, staleness_rows
from grpc_ps.worker.progress import Mark, Progress
from grpc_ps.worker.summaries import Summaries


def member(worker: int = 0, **fields: Any) -> WorkerStatus:
    usual: dict[str, Any] = {
        "incarnation": worker + 1, "name": "", "local_step": 0, "applied": 0, "late": 0, "non_finite": 0, "done": 0,
        "batch": None, "staleness": 0, "silent_ms": 0, "loss": None, "evaluator": not worker,
    }  # fmt: skip
    return WorkerStatus(worker=worker, **{**usual, **fields})


def cluster(step: int, *workers: WorkerStatus, **fields: Any) -> ClusterStatus:
    usual: dict[str, Any] = {
        "run": 7, "generation": 1, "phase": "running", "model": "test", "settings": {}, "shards": (), "opened": 1,
        "uptime_ms": 1000 * step, "waiting_for": "", "learning_rate": 0.5,
    }  # fmt: skip
    return ClusterStatus(global_step=step, workers=workers or (member(),), **{**usual, **fields})


def tags(summary: Any) -> dict[str, Any]:
    """Values by tag: a number, or a histogram's rows."""
    from tensorboard.util import tensor_util

    return {value.tag: tensor_util.make_ndarray(value.tensor).tolist() for value in summary.value}


def test_a_workers_point() -> None:
    since, now = Mark(10.0, 40, 20, 200), Mark(12.0, 60, 30, 300)
    point = Point(mark=now, at=0.0, loss=0.25, outcomes={"APPLIED": 28, "LATE": 2}, staleness={0: 1, 1: 2})
    assert tags(of_worker(point, since)) == {
        "loss": 0.25,
        "local_step": 30,
        "speed/steps_per_second": 5,
        "speed/examples_per_second": 50,
        "pushes/applied": 28,
        "pushes/late": 2,
        "pushes/non_finite": 0,
        "staleness": [[-0.5, 0.5, 1], [0.5, 1.5, 2]],
    }
    # Nothing is known of the speed at first, and an empty histogram would be drawn.
    first = tags(of_worker(replace(point, staleness={}), None))
    assert set(first) == {"loss", "local_step", "pushes/applied", "pushes/late", "pushes/non_finite"}


@pytest.mark.parametrize("loss", [float("nan"), float("inf"), 1e300])
def test_numbers_that_are_not_finite_are_no_error(loss: float) -> None:
    point = Point(mark=Mark(0.0, 1, 1, 1), at=0.0, loss=loss, outcomes={})
    np.testing.assert_equal(tags(of_worker(point, None))["loss"], np.inf if loss > 1e30 else loss)


def test_the_jobs_point() -> None:
    times = WorkerTimes(steps=10, input=0.01, compute=0.02, encode=0.03, answer=0.04, receive=0.01)
    first = cluster(10, member(), outcomes={"APPLIED": 10}, staleness_counts=(9, 1))
    now = cluster(
        20, member(times=times), member(2), outcomes={"APPLIED": 19, "LATE": 1}, staleness_counts=(12, 1, 6, 0)
    )
    found = tags(of_job(now, first))
    assert {name: value for name, value in found.items() if "/worker-" not in name} == {
        "learning_rate": 0.5,
        "workers": 2,
        "pushes/applied": 19,
        "pushes/late": 1,
        "pushes/non_finite": 0,
        "speed/global_steps_per_second": 1,
        "staleness": [[-0.5, 0.5, 3], [1.5, 3.5, 6]],
    }
    phases = {name.rpartition("/")[2]: value for name, value in found.items() if name.startswith("time/worker-0/")}
    assert phases == pytest.approx({"input": 1, "compute": 2, "encode": 3, "wire": 5, "shard": 0, "wait": 0})


def test_ranges_of_staleness_have_their_ends() -> None:
    counts = (1, 2, 3, 4, *[0] * 7, 5)
    assert staleness_rows(counts, []) == [(0, 0, 1), (1, 1, 2), (2, 3, 3), (4, 7, 4), (1024, 2047, 5)]


def test_metrics_have_their_own_names() -> None:
    assert tags(of_evaluation({"accuracy": 0.5, "loss": 2.0})) == {"accuracy": 0.5, "loss": 2.0}


class Lead:
    """Says one state after another, or is out of reach."""

    def __init__(self, *said: ClusterStatus | PsError) -> None:
        self.said: list[ClusterStatus | PsError] = list(said)

    def __call__(self) -> ClusterStatus:
        now = self.said.pop(0) if len(self.said) > 1 else self.said[0]
        if isinstance(now, PsError):
            raise now
        return now


def session(generation: int = 1, *, worker: int = 0, evaluator: bool = False) -> Any:
    return SimpleNamespace(worker=worker, incarnation=worker + 1, run=7, generation=generation, evaluator=evaluator)


def train(summaries: Summaries, progress: Progress, steps: Sequence[int], *, staleness: int = 0) -> None:
    for step in steps:
        progress.step(step, "APPLIED", 10)
        progress.loss = step / 8
        summaries.step(Reply(outcome="APPLIED", global_step=step, staleness=staleness), progress.loss, progress)


def test_a_job_in_one_session(tmp_path: Path) -> None:
    progress = Progress(lambda line: None)
    summaries = Summaries(tmp_path, 10, Lead(cluster(0), cluster(35, outcomes={"APPLIED": 35})))
    summaries.begin(session())
    train(summaries, progress, range(1, 36), staleness=1)
    summaries.evaluated(20, {"accuracy": 0.75})
    summaries.evaluated(35, {"accuracy": 0.875})
    handed_over = time.time()
    summaries.end(progress)
    whole = check_whole(tmp_path)
    assert set(whole) == {"worker-0", "job", "eval"}
    # A point has the time of its step, not that of its writing.
    assert [step for step, at in times(tmp_path / "worker-0", "loss").items() if at <= handed_over] == [1, 10, 20, 30]
    assert max(times(tmp_path / "eval", "accuracy").values()) <= handed_over
    # The first, one in ten, and the last.
    assert whole["worker-0"]["loss"] == [1, 10, 20, 30, 35]
    assert values(tmp_path / "worker-0", "loss") == {step: step / 8 for step in (1, 10, 20, 30, 35)}
    # Each applied push since the point before, all of staleness 1.
    counts = {step: table for step, (table,) in rows(tmp_path / "worker-0", "staleness").items()}
    assert counts == {step: [0.5, 1.5, count] for step, count in ((1, 1), (10, 9), (20, 10), (30, 10), (35, 5))}
    assert values(tmp_path / "eval", "accuracy") == {20: 0.75, 35: 0.875}
    assert values(tmp_path / "job", "pushes/applied") == {35: 35.0}


def test_the_staleness_of_late_pushes_is_not_counted(tmp_path: Path) -> None:
    progress = Progress(lambda line: None)
    summaries = Summaries(tmp_path, 10, Lead(cluster(0)))
    summaries.begin(session())
    progress.step(3, "APPLIED", 10)
    summaries.step(Reply(outcome="APPLIED", global_step=3, staleness=1), 0.5, progress)
    progress.step(4, "LATE", 10)
    summaries.step(Reply(outcome="LATE", global_step=4, staleness=7), 0.5, progress)
    train(summaries, progress, [12])
    summaries.close()
    assert rows(tmp_path / "worker-0", "staleness") == {3: [[0.5, 1.5, 1]], 12: [[-0.5, 0.5, 1]]}
    assert values(tmp_path / "worker-0", "pushes/late") == {3: 0, 12: 1}


def test_only_the_holder_of_the_lease_writes_for_the_job(tmp_path: Path) -> None:
    progress = Progress(lambda line: None)
    summaries = Summaries(tmp_path, 10, Lead(cluster(30, member(0), member(1))))
    summaries.begin(session(worker=1))
    train(summaries, progress, range(1, 30))
    summaries.end(progress)
    assert set(check_whole(tmp_path)) == {"worker-1"}


def test_the_job_is_written_while_it_runs_by_whoever_holds_the_lease(tmp_path: Path) -> None:
    one = session(evaluator=True)
    lead = Lead(*(cluster(step) for step in range(100)))
    summaries = Summaries(tmp_path, 10, lead, interval=0.001, job_interval=0.0)
    summaries.begin(one)
    wait_for(lambda: len(recorded(tmp_path / "job").get("learning_rate", [])) >= 3, "points of the job")
    # The lease has gone to another worker, which finds the folder free.
    one.evaluator = False
    wait_for(lambda: is_free(tmp_path / "job"), "the folder to be let go")
    summaries.close()
    check_whole(tmp_path)


def is_free(folder: Path) -> bool:
    try:
        EventFolder(folder, Timeline(run=7, generation=1)).close()
    except FolderTaken:
        return False
    return True


def test_a_rollback_takes_steps_back(tmp_path: Path) -> None:
    back = CheckpointStatus(directory="d", restored_step=20)
    progress = Progress(lambda line: None)
    first = Summaries(tmp_path, 10, Lead(cluster(0), cluster(35)))
    first.begin(session())
    train(first, progress, range(1, 36))
    first.evaluated(15, {"accuracy": 0.1})
    first.evaluated(35, {"accuracy": 0.2})
    first.end(progress)
    # Two rollbacks in a row: of the first one's life nothing comes to be written.
    lead = Lead(cluster(20, generation=3, checkpoint=back), cluster(45, generation=3, checkpoint=back))
    again = Summaries(tmp_path, 10, lead)
    again.begin(session(2))
    train(again, progress, (31, 32))
    again.begin(session(3))
    train(again, progress, range(21, 46))
    again.evaluated(40, {"accuracy": 0.3})
    again.end(progress)
    whole = check_whole(tmp_path)
    assert whole["worker-0"]["loss"] == [1, 10, 20, 21, 30, 40, 45]
    assert values(tmp_path / "eval", "accuracy") == {15: pytest.approx(0.1), 40: pytest.approx(0.3)}
    assert whole["job"]["learning_rate"] == [45]


def test_a_lead_out_of_reach_costs_nothing_but_the_figures(tmp_path: Path) -> None:
    progress = Progress(lambda line: None)
    summaries = Summaries(tmp_path, 10, Lead(PeerLost("gone")))
    summaries.begin(session(evaluator=True))
    train(summaries, progress, range(1, 30))
    summaries.close()
    assert check_whole(tmp_path) == {}


def test_an_error_in_it_is_logged_and_ends_nothing_else(tmp_path: Path, log: ShardLog) -> None:
    progress = Progress(lambda line: None)

    def broken() -> ClusterStatus:
        raise ZeroDivisionError

    summaries = Summaries(tmp_path, 10, broken)
    summaries.begin(session())
    train(summaries, progress, range(1, 30))
    summaries.end(progress)
    assert log.of("summaries_failed") == ["summaries_failed"]
