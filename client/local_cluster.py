"""A cluster on this machine for notebooks and tests: real shards, which end with the block that needs them."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Any

from grpc_ps.client.client import PSClient
from grpc_ps.client.launch_plan import LaunchPlan
from grpc_ps.client.launch_run import Ended, Run
from grpc_ps.client.processes import last_lines
from grpc_ps.client.shared.errors import JobFailed
from grpc_ps.client.shared.flags import typed
from grpc_ps.client.shared.job_flags import JOB_FLAGS


class LocalCluster:
    """Shards as processes of this machine, on ports of their own, on 127.0.0.1; a context manager.

        with LocalCluster(ps=2) as cluster:
            print(cluster.client().status())

    They end when the block is left in whichever way, when the interpreter exits, and, on Linux, when it is killed.
    To be started in the main thread: the kernel ends a process with the thread that started it.

    Args:
        ps: how many shards.
        log_dir: an existing folder for their logs, which stay; else they are gone with the cluster.
        ready_timeout: seconds for all to be ready.
        flags: of `psserver`, by their names: `mode="sync", workers=2, checkpoint_dir="ckpt", keep_alive=True`.
    """

    def __init__(
        self, ps: int = 1, *, log_dir: str | Path | None = None, ready_timeout: float = 120.0, **flags: Any
    ) -> None:
        self._ps = ps
        self._log_dir = None if log_dir is None else Path(log_dir)
        self._ready_timeout = ready_timeout
        self._flags = flags
        self._run: Run | None = None
        self._folder: Path | None = None
        self.addresses = ""

    def start(self) -> LocalCluster:
        """Starts the shards and returns the cluster once all are ready; `addresses` has them then, as --ps takes them.

        Raises:
            JobFailed: one ended instead, with its exit code and last line.
        """
        if self._log_dir is None:
            self._folder = Path(tempfile.mkdtemp(prefix="grpc-ps-"))
        self._run = Run(self._plan(self._log_dir or self._folder or Path()), lambda event: None)
        atexit.register(self.close)
        try:
            self.addresses = ",".join(self._run.start())
        except Ended as error:
            self.close()
            said = last_lines(error.at_fault)[-1:]
            raise JobFailed(": ".join([error.reason, *said]), exit_code=error.exit_code) from None
        except BaseException:
            self.close()
            raise
        return self

    def _plan(self, folder: Path) -> LaunchPlan:
        # The lead alone takes the job's settings.
        lead = {name: value for name, value in self._flags.items() if name in JOB_FLAGS}
        all_of_them = {name: value for name, value in self._flags.items() if name not in JOB_FLAGS}
        return LaunchPlan(
            shards=self._ps,
            workers=0,
            shard_command=[sys.executable, "-m", "grpc_ps.psserver", *typed(all_of_them)],
            worker_command=(),
            log_dir=folder,
            own_flags={"ps 0": typed(lead)},
            ready_timeout=self._ready_timeout,
        )

    @property
    def pids(self) -> list[int]:
        """The processes' ids, shard 0's first."""
        return [] if self._run is None else [child.pid for child in self._run.group.children]

    def client(self, **options: Any) -> PSClient:
        """A client of the cluster, to be closed by the caller; `options` are those of `PSClient`."""
        return PSClient(self.addresses, **options)

    def wait(self, timeout: float = 60.0) -> list[int | None]:
        """Waits until the shards have ended by themselves, as they do after their job.

        Returns their exit codes, None for each that still runs after `timeout` seconds.
        """
        if self._run is None:
            return []
        group, deadline = self._run.group, time.monotonic() + timeout
        while group.running() and group.wait(deadline) is not None:
            pass
        return [child.code for child in group.children]

    def close(self) -> None:
        """Ends what still runs; calling it again does nothing."""
        atexit.unregister(self.close)
        run, self._run = self._run, None
        try:
            if run is not None:
                run.group.end()
                run.close(max((child.code or 0 for child in run.group.children), default=0))
        finally:
            if self._folder is not None:
                shutil.rmtree(self._folder, ignore_errors=True)

    def __enter__(self) -> LocalCluster:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
