"""The queue of jobs on the disk: `queue.json` in the lead's folder of checkpoints, which only the lead writes."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from grpc_ps.client.shared.durable import replacing, reporting, write_all
from grpc_ps.client.shared.errors import CheckpointError
from grpc_ps.psserver.lead.queue import Queue, QueuedJob, Reading, Submission

NAME = "queue.json"
FORMAT = 1
_FOLDER = re.compile(r"job-(\d{4,9})")


@dataclass(frozen=True, kw_only=True)
class Kept:
    """What the file has: the queue, and the run that was on the shards last, 0 if no job of the queue ever was."""

    queue: Queue
    run: int = 0


def job_folder(number: int) -> str:
    """Name of the folder with the checkpoints of a job of the queue."""
    return f"job-{number:04d}"


def _number(name: str) -> int:
    """The number of the job with that folder, 0 if it is no job's."""
    found = _FOLDER.fullmatch(name)
    return int(found[1]) if found else 0


def to_json(queue: Queue, run: int) -> str:
    """The text of the file."""
    record = {
        "format": FORMAT,
        "following": queue.following,
        "run": f"{run:016x}",
        "jobs": [_record(job) for job in queue],
    }
    return json.dumps(record, indent=1, allow_nan=False) + "\n"


def _record(job: QueuedJob) -> dict[str, Any]:
    record = asdict(job)
    # These may be NaN, which JSON does not have.
    last = record["last"]
    last.pop("loss")
    last["metrics"] = {name: value for name, value in last["metrics"].items() if math.isfinite(value)}
    return {**record, "run": f"{job.run:016x}"}


def write(folder: Path, text: str) -> None:
    """Writes the file whole; a reader sees the old one or the new one, also after a crash. Raises CheckpointError."""
    with reporting(folder / NAME, "written"), replacing(folder / NAME) as file:
        write_all(file, text.encode())


def read(folder: Path) -> Kept:
    """Reads the file; an empty queue where there is none.

    Raises:
        CheckpointError: it cannot be read, or is not what a lead wrote.
    """
    path = folder / NAME
    try:
        with reporting(path, "read"):
            free = 1 + max((number for it in folder.iterdir() if (number := _number(it.name))), default=0)
            text = path.read_bytes()
    except CheckpointError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return Kept(queue=Queue(following=free))
        raise
    try:
        record = json.loads(text)
        if record["format"] != FORMAT:
            raise ValueError(f"format {record['format']} is not this version's")
        queue = Queue((_job(it) for it in record["jobs"]), max(free, int(record["following"])))
        return Kept(queue=queue, run=int(record["run"], 16))
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise CheckpointError(
            f"{path}: is no queue of this version ({type(error).__name__}: {error}); put it aside to begin without it"
        ) from None


def _job(record: Mapping[str, Any]) -> QueuedJob:
    submission = dict(record["submission"])
    submission["arguments"] = tuple(submission["arguments"])
    return QueuedJob(
        **{
            **record,
            "run": int(record["run"], 16),
            "submission": Submission(**submission),
            "last": Reading(**record["last"]),
        }
    )
