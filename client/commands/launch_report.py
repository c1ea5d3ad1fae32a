"""What `psctl launch` says in the end."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import TextIO

from grpc_ps.client.commands.tables import counted, result_text
from grpc_ps.client.launch_plan import LaunchPlan, LaunchResult
from grpc_ps.client.shared.errors import JobFailed


def report(result: LaunchResult, plan: LaunchPlan, *, as_json: bool, stands: bool, again: bool) -> None:
    """Says how the cluster ended; `again`: with the last lines of what failed.

    Raises:
        JobFailed: it did not end well; carries the exit code.
    """
    if as_json:
        print(json.dumps({**result.summary(), "log_dir": str(plan.log_dir)}), flush=True)
    if result.exit_code or result.reason:
        for line in result.last_lines if again else ():
            print(line, file=sys.stderr)
        raise JobFailed(f"{result.reason}; logs: {plan.log_dir}", exit_code=result.exit_code or 4)
    if stands and not as_json:
        print(f"the cluster has ended, {result.wall_seconds:.1f} s")
    elif not as_json:
        print("\n".join(summary_lines(result, plan.checkpoints)))


def is_where_errors_go(out: TextIO) -> bool:
    """Whether what is written there and what is written to stderr is read as one."""
    try:
        return out is sys.stderr or os.path.samestat(os.fstat(out.fileno()), os.fstat(sys.stderr.fileno()))
    except (OSError, ValueError):  # a stream that is no file
        return False


def summary_lines(result: LaunchResult, checkpoints: Path | None = None) -> list[str]:
    """Returns how a job that ended well did, for people; `checkpoints` is the folder that it may have gone on from."""
    whole = result.summary()
    parts = [f"{result.ended_by or 'done'}: global step {whole['global_step']}", f"{result.wall_seconds:.1f} s"]
    if said := result_text(whole["metrics"], whole["loss"]):
        parts.insert(1, said)
    if result.restarts:
        parts.append(counted(result.restarts, "restart"))
    lines = [", ".join(parts)]
    for number, worker in enumerate(result.workers):
        outcomes = ", ".join(f"{name.lower()} {count}" for name, count in worker.get("outcomes", {}).items() if count)
        outcomes = outcomes or "no pushes"
        lines.append(f"  worker {worker.get('worker', number)}: local step {worker.get('local_steps')}, {outcomes}")
    if result.was_over:
        why = f"nothing was trained: the job in {checkpoints} was at its last step already"
        lines.append(f"{why}; a larger --steps (or --epochs) goes on from there")
    return lines
