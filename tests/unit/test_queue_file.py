"""The queue on the disk: what a lead finds that is started again."""

from __future__ import annotations

from pathlib import Path

import pytest

from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.psserver import queue_file
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.queue import Queue, Reading, Submission
from grpc_ps.psserver.queue_file import NAME, job_folder, read, to_json, write

WHOLE = Submission(
    model="mnist",
    name="first try",
    arguments=("hidden=64",),
    options={"data_dir": "/d"},
    stated={"steps": 30, "learning_rate": 0.1, "nesterov": True, "until": "accuracy>=0.9"},
    members=2,
)


def used_queue() -> Queue:
    """Jobs 1 and 2 have ended, 3 is carried out, 4 waits, 5 was cancelled."""
    queue = Queue()
    for name in ("a", "b", "c", "d", "e"):
        queue.submit(Submission(model="linear", name=name) if name != "d" else WHOLE, at=1.5)
    for done in (Done(), Done(5, "NaN")):
        queue.begin(queue.queued()[0], run=(1 << 63) + 5, at=2.5)
        metrics = {"accuracy": 0.5, "loss": float("nan"), "norm": float("inf")}
        last = Reading(global_step=7, loss=float("nan"), metrics=metrics, evaluated_step=7)
        queue.end(done, last, at=3.5)
    queue.cancel(5, at=4.5)
    queue.begin(queue.queued()[0], run=99, at=5.5)
    queue.joined()
    return queue


def test_everything_comes_back(tmp_path: Path) -> None:
    queue = used_queue()
    write(tmp_path, to_json(queue, run=99))
    kept = read(tmp_path)
    assert kept.run == 99
    for job in queue:
        if job.state in ("DONE", "FAILED"):
            # Without what JSON does not have.
            job.last = Reading(global_step=7, metrics={"accuracy": 0.5}, evaluated_step=7)
    assert list(kept.queue) == list(queue)
    assert kept.queue.current == queue.get(3)
    assert [job.number for job in kept.queue.queued()] == [4]
    assert kept.queue.submit(WHOLE, at=9.0).number == 6
    assert [path.name for path in tmp_path.iterdir()] == [NAME], "nothing is left of writing"


def test_without_a_file_the_queue_is_empty_and_numbers_are_not_used_twice(tmp_path: Path) -> None:
    assert (list(read(tmp_path).queue), read(tmp_path).run) == ([], 0)
    for name in (job_folder(1), job_folder(12), "job-13.old", "step-00000040"):
        (tmp_path / name).mkdir()
    assert read(tmp_path).queue.submit(WHOLE, at=0.0).number == 13
    write(tmp_path, to_json(used_queue(), run=1))
    assert read(tmp_path).queue.submit(WHOLE, at=0.0).number == 13


@pytest.mark.parametrize("text", ["", "{", "[]", '{"format": 2}', '{"format": 1, "following": 1, "run": "1"}'])
def test_what_no_lead_wrote_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / NAME).write_text(text)
    with pytest.raises(CheckpointError, match=rf"{NAME}: is no queue of this version .*; put it aside"):
        read(tmp_path)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(tmp_path, to_json(used_queue(), run=1))

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(queue_file, "write_all", full)
    with pytest.raises(CheckpointError, match=r"queue\.json: cannot be written: No space left on device"):
        write(tmp_path, to_json(Queue(), run=2))
    assert read(tmp_path).run == 1
