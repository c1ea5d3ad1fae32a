"""What one worker process was told to do, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

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
    index: int | None = None
    eval_every: int = 0
    """Global steps from one evaluation to the next; zero evaluates at the end only."""
    device: str | None = None
    """As "cpu:0"; None leaves it to TensorFlow."""
    threads: int | None = None
    """Threads within and between TensorFlow's operations; None means one a core."""
    connect_timeout: float = 60.0
    """Seconds for which servers may be unreachable at the start."""
    json: bool = False
