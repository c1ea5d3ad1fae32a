"""What a worker with a job of its own says of a queue that it passes over."""

from __future__ import annotations

import logging

from grpc_ps.client import PsError
from grpc_ps.client.jobs import JobQueue
from grpc_ps.client.shared.logs import event

_LOGGER = logging.getLogger("grpc_ps.worker")


def note_queue(jobs: JobQueue) -> None:
    """Warns that jobs wait which this worker is not for, if there are any."""
    try:
        waiting = sum(job.state == "queued" for job in jobs.list())
    except PsError:  # It is not what this worker is for; what is wrong with the lead, its session will tell.
        return
    if waiting:
        jobs_wait = "1 job waits" if waiting == 1 else f"{waiting} jobs wait"
        note = f"{jobs_wait} here for workers that stand by: leave out --model to be one"
        event(_LOGGER, "queue_passed_over", logging.WARNING, note=note)
