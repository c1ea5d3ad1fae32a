"""What `psctl launch` is to start, and what it says in the end."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from grpc_ps.client.processes import GRACE_SECONDS
from grpc_ps.client.shared.newest_loss import newest_loss


@dataclass(frozen=True, kw_only=True)
class LaunchPlan:
    """What to start, and how long to wait for what.

    `shard_command` and `worker_command` are complete but for what only the launcher knows: a shard's number, its port,
    the lead's address, the list of shards, a worker's index.
    """

    shards: int
    workers: int
    shard_command: Sequence[str]
    worker_command: Sequence[str]
    # An existing folder for logs and cluster file.
    log_dir: Path
    # Flags of single processes, by their names: "ps 0", "worker 1".
    own_flags: Mapping[str, Sequence[str]] = field(default_factory=dict)
    # Whole commands of processes that run on other hosts, by their names, and what the shards' addresses are there.
    elsewhere: Mapping[str, Sequence[str]] = field(default_factory=dict)
    addresses: Sequence[str] = ()
    # How many ended processes are started again, all in all.
    max_restarts: int = 0
    # Where the shards save the job, if they do: a shard that is started again finds its part then.
    checkpoints: Path | None = None
    # Seconds for all shards to say READY.
    ready_timeout: float = 120.0
    # Seconds for the last shards to end once the others or all workers have.
    drain_timeout: float = 60.0
    # Seconds for the others to end by themselves, with the job's exit code, when the job has failed.
    settle: float = 5.0
    # Seconds between SIGTERM and SIGKILL.
    grace: float = GRACE_SECONDS


@dataclass(frozen=True, kw_only=True)
class LaunchResult:
    """How a cluster ended: exit code 0, or the code to exit with and why."""

    exit_code: int
    reason: str = ""
    # Last lines of the process at fault, each with that process's name.
    last_lines: tuple[str, ...] = ()
    # What the workers that finished say of themselves, in order of their indices.
    workers: tuple[Mapping[str, Any], ...] = ()
    # How many processes were started again.
    restarts: int = 0
    wall_seconds: float = 0.0
    # The step of the checkpoint that the job went on from first; None if it began anew.
    resumed: int | None = None

    @property
    def ended_by(self) -> str:
        """What ended the job before its steps or epochs were done, as its workers were told; empty if nothing did."""
        return next((str(worker["reason"]) for worker in self.workers if worker.get("reason")), "")

    @property
    def was_over(self) -> bool:
        """Whether the job was over in the checkpoint already, so that there was nothing to train."""
        idle = all(worker.get("local_steps") == 0 for worker in self.workers)
        return bool(self.workers) and idle and self.summary()["global_step"] == self.resumed

    def summary(self) -> dict[str, Any]:
        """Returns the run in one record for programs: the job's own figures and the workers'."""
        accuracies = [worker["accuracy"] for worker in self.workers if worker.get("accuracy") is not None]
        steps = [worker["global_step"] for worker in self.workers if "global_step" in worker]
        return {
            "exit_code": self.exit_code,
            "reason": self.reason,
            "ended_by": self.ended_by,
            "global_step": max(steps, default=None),
            "accuracy": accuracies[0] if accuracies else None,
            "loss": newest_loss((worker.get("loss"), worker.get("applied_step")) for worker in self.workers),
            "metrics": next((worker["metrics"] for worker in self.workers if worker.get("metrics")), {}),
            "restarts": self.restarts,
            "wall_seconds": round(self.wall_seconds, 3),
            "last_lines": list(self.last_lines),
            "workers": list(self.workers),
        }
