"""A cluster on this machine for notebooks and tests: real shards, which end with the block that needs them."""

from __future__ import annotations

import atexit
import shutil
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

from grpc_ps.client.client import PSClient
from grpc_ps.client.launch_plan import LaunchPlan
from grpc_ps.client.launch_run import Ended, Run
from grpc_ps.client.processes import last_lines
from grpc_ps.client.shared.errors import JobFailed, UsageError
from grpc_ps.client.shared.flags import typed
from grpc_ps.client.shared.job_flags import JOB_FLAGS
from grpc_ps.client.shared.job_settings import as_flags, checked_settings

_MOST_SHARDS = 1024
# Seconds between two looks at who has ended.
_LOOK_SECONDS = 0.2
# Flags of `psserver` that say what the cluster says by itself.
_OWN = ("shard", "shards", "port", "lead")
_DONE = (
    "the job is over, and the shards of the LocalCluster have ended with it; start another one, or one with"
    " keep_alive=True"
)


class LocalAddresses(str):
    """Addresses at which shards of this process's own were; `still` raises once these have ended."""

    still: Callable[[], None]

    def __new__(cls, text: str, still: Callable[[], None]) -> LocalAddresses:
        """The text with who knows."""
        made = super().__new__(cls, text)
        made.still = still
        return made


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

    Raises:
        UsageError: something of that is not possible.
    """

    def __init__(
        self, ps: int = 1, *, log_dir: str | Path | None = None, ready_timeout: float = 120.0, **flags: Any
    ) -> None:
        given: Any = ps
        if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= _MOST_SHARDS:
            raise UsageError(f"ps {ps!r}: how many shards; must be a whole number, 1 to {_MOST_SHARDS}")
        if log_dir is not None and not Path(log_dir).is_dir():
            raise UsageError(f"log_dir {log_dir}: there is no such folder")
        if own := sorted({*_OWN} & flags.keys()):
            raise UsageError(f"{own[0]}: the cluster says that by itself; ps=N says how many shards it has")
        # The lead alone takes the job's settings.
        job = {name: value for name, value in flags.items() if name in JOB_FLAGS}
        checked_settings(job)
        self._ps = ps
        self._log_dir = None if log_dir is None else Path(log_dir)
        self._ready_timeout = ready_timeout
        self._of_job = as_flags(job)
        self._flags = {name: value for name, value in flags.items() if name not in JOB_FLAGS}
        self._run: Run | None = None
        self._folder: Path | None = None
        self._addresses = ""
        # Why there is no cluster any more, with an exit code; None while there may be one.
        self._over: tuple[str, int] | None = None

    @property
    def addresses(self) -> str:
        """Those of all shards, as --ps takes them.

        Raises:
            UsageError: the cluster has not been started.
            JobFailed: there is nobody at them any more: the job is over, a shard has failed, or the cluster was closed.
        """
        if not self._addresses:
            raise UsageError("the LocalCluster has not been started: use it as a context manager, or call start()")
        self.still()
        return LocalAddresses(self._addresses, self.still)

    def still(self) -> None:
        """Raises JobFailed once there is nobody any more; whoever waits for the shards asks again and again."""
        self._look()
        if self._over is not None:
            raise JobFailed(self._over[0], exit_code=self._over[1])

    def _look(self) -> None:
        """Notes the ends of shards that have come since."""
        # Another thread may close the cluster meanwhile.
        run = self._run
        if run is None:
            return
        group = run.group
        while group.wait(time.monotonic()) is not None:
            pass
        failed = next((child for child in group.children if child.code), None)
        if failed is not None:
            words = [f"{failed.name} failed with exit code {failed.code}", *last_lines([failed])[-1:]]
            self._over = ": ".join(words), failed.code or 4
        elif any(child.code == 0 for child in group.children):
            self._over = _DONE, 4

    def start(self) -> LocalCluster:
        """Starts the shards and returns the cluster once all are ready; `addresses` has them then.

        Raises:
            JobFailed: one ended instead, with its exit code and last line.
        """
        if self._log_dir is None:
            self._folder = Path(tempfile.mkdtemp(prefix="grpc-ps-"))
        self._run = Run(self._plan(self._log_dir or self._folder or Path()), lambda event: None)
        atexit.register(self.close)
        try:
            self._addresses, self._over = ",".join(self._run.start()), None
        except Ended as error:
            self.close()
            said = last_lines(error.at_fault)[-1:]
            raise JobFailed(": ".join([error.reason, *said]), exit_code=error.exit_code) from None
        except BaseException:
            self.close()
            raise
        return self

    def _plan(self, folder: Path) -> LaunchPlan:
        return LaunchPlan(
            shards=self._ps,
            workers=0,
            shard_command=[sys.executable, "-m", "grpc_ps.psserver", *typed(self._flags)],
            worker_command=(),
            log_dir=folder,
            own_flags={"ps 0": typed(self._of_job)},
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
        while group.running() and time.monotonic() < deadline:
            # Not longer: whoever asks for the addresses may have been told instead.
            group.wait(min(deadline, time.monotonic() + _LOOK_SECONDS))
        return [child.code for child in group.children]

    def close(self) -> None:
        """Ends what still runs; calling it again does nothing."""
        atexit.unregister(self.close)
        self._look()
        run, self._run = self._run, None
        self._over = self._over or ("the LocalCluster has been closed", 4)
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
