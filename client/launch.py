"""Starts a whole cluster on this machine and watches over it until it ends: what `psctl launch` does."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable

from grpc_ps.client.launch_plan import LaunchPlan, LaunchResult
from grpc_ps.client.launch_run import Ended, LaunchEvent, Run
from grpc_ps.client.processes import last_lines
from grpc_ps.client.restarts import Restart

__all__ = ["LaunchEvent", "LaunchPlan", "LaunchResult", "Restart", "launch"]


def launch(
    plan: LaunchPlan, *, observe: Callable[[LaunchEvent], None], started: Callable[[tuple[str, ...]], None]
) -> LaunchResult:
    """Starts shards and workers, and returns when all have ended; nothing is left running then.

    A process that dies is started again as often as the plan allows. Failing that, it ends all the others: its exit
    code is the result's, or that of what made it fail. Once a shard has ended with 0 the job is over and good, whatever
    becomes of the others. SIGINT, SIGTERM and SIGHUP to this process end the cluster: exit code 128 + their number; a
    second one does not wait for the grace time.
    Runs in the main thread. `observe` gets each event, `started` the shards' addresses once all processes run.
    """
    begin = time.monotonic()
    run = Run(plan, observe)
    with run.group.signals(signal.SIGINT, signal.SIGTERM, signal.SIGHUP), run.group:
        try:
            started(run.start())
            run.watch()
            ended = Ended(0, "")
        except Ended as error:
            ended = run.settle(error)
        left = run.group.end()
        run.close(ended.exit_code)
    stuck = [f"{child.name} (pid {child.pid}) does not end even when killed" for child in left]
    return LaunchResult(
        exit_code=ended.exit_code,
        reason="; ".join(filter(None, [ended.reason, *stuck])),
        last_lines=tuple(last_lines(ended.at_fault)),
        workers=run.summaries(),
        restarts=run.restarts,
        wall_seconds=time.monotonic() - begin,
        resumed=run.resumed,
    )
