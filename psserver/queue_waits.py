"""What a cluster that takes jobs waits for, and each job in its queue. For people."""

from __future__ import annotations

from typing import TYPE_CHECKING

from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.queue import QueuedJob
from grpc_ps.psserver.queue_plan import is_idle

if TYPE_CHECKING:
    from grpc_ps.psserver.jobs import Jobs

_WORKER = "a standing worker"


def cluster_waits_for(jobs: Jobs, job: Job) -> str:
    """What the cluster waits for while no job is carried out; empty where that is nobody's concern.

    `job` is the one that is, or was last, on the shards.
    """
    queued, current = jobs.queue.queued(), jobs.queue.current
    if jobs.plan is None or current is not None:
        return _opening(jobs, current, job) if current is not None else ""
    if queued and not len(jobs.standing):
        return f"{_WORKER} for job {queued[0].number}"
    if queued and (missing := _missing(job)):
        return f"{missing}, for job {queued[0].number}"
    return "" if queued or job.phase != "EMPTY" else "a job (psctl submit), or a worker that brings one"


def _opening(jobs: Jobs, current: QueuedJob, job: Job) -> str:
    """What the present job waits for that nobody has opened: its processes may load their data first."""
    if current is not jobs.present or job.phase != "EMPTY":
        return ""
    return "a worker that was told of it to join" if jobs.standing.carriers(current) else _WORKER


def _missing(job: Job) -> str:
    missing = job.shards.missing()
    return f"shard {', '.join(map(str, missing))} to connect to the lead" if missing else ""


def queued_waits_for(jobs: Jobs, waiting: QueuedJob, job: Job) -> str:
    """What a job in the queue waits for; empty where it is about to begin."""
    parts = [] if len(jobs.standing) else [_WORKER]
    ahead = [it.number for it in jobs.queue.queued() if it.number < waiting.number]
    if jobs.queue.current is not None:
        ahead.insert(0, jobs.queue.current.number)
    if ahead:
        more = f" and {len(ahead) - 1} more" if len(ahead) > 1 else ""
        parts.append(f"job {ahead[0]}{more} to end")
    elif missing := _missing(job):
        parts.append(missing)
    elif not is_idle(job):
        parts.append("the job that runs here to end")
    return ", and ".join(parts)
