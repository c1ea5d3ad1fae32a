"""What one worker process was told to do, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from grpc_ps.client.shared.faults import FaultPlan
from grpc_ps.client.shared.summary_flags import SUMMARY_EVERY

if TYPE_CHECKING:  # It needs modules that import gRPC, which the process has to be prepared for.
    from grpc_ps.client import Security
    from grpc_ps.worker.initial import InitialFile

Value: TypeAlias = int | float | str
"""A value of --model-arg, or of a setting of the job."""


@dataclass(frozen=True, kw_only=True)
class WorkerConfig:
    """All flags of the `worker` command. Only the command line makes one.

    `stated` has the job's settings that the user insists on, by their names; the others are the process's own.
    """

    addresses: tuple[str, ...]
    model: str
    arguments: Mapping[str, Value]
    stated: Mapping[str, Value]
    data: str | None = None
    data_dir: Path | None = None
    download: bool = False
    """Whether data files that are not in `data_dir` are fetched."""
    download_url: str | None = None
    """Where from; None for their publisher's address."""
    index: int | None = None
    evaluates: bool = False
    """Whether it only evaluates, beside workers that train."""
    run: int = 0
    """The job to join, by its run id; 0 for any."""
    initial: InitialFile | None = None
    """Where the first values come from, if not from the job's seed."""
    device: str | None = None
    """As "cpu:0"; None leaves it to TensorFlow."""
    connect_timeout: float = 60.0
    """Seconds for which servers may be unreachable at the start."""
    overlap: bool = False
    """Whether the next gradient is computed while a push is exchanged."""
    logdir: Path | None = None
    """Where TensorBoard's summaries go, None for none, with so many global steps between two of this worker's."""
    summary_every: int = SUMMARY_EVERY
    raw: bool = False
    """Whether the values are evaluated where the job keeps moving averages of them."""
    json: bool = False
    security: Security | None = None
    """TLS and token for the way to the servers."""
    faults: FaultPlan = field(default_factory=FaultPlan)
    """Failures that are made on purpose."""

    @property
    def threads(self) -> int | None:
        """Threads within and between TensorFlow's operations; None means one a core."""
        threads = self.stated.get("threads")
        return None if threads is None else int(threads)
