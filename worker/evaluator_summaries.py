"""What an evaluator that is no member of the job writes for TensorBoard."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

from grpc_ps.client import ClusterStatus
from grpc_ps.worker.event_folder import Timeline
from grpc_ps.worker.figures import of_evaluation
from grpc_ps.worker.run_folder import RunFolder


class EvaluatorSummaries:
    """Its metrics by global step in DIR/evaluator; DIR/eval is the workers'.

    `follow` may be called beside `evaluated`, and `close` after both.

    Args:
        directory: TensorBoard's --logdir.
    """

    def __init__(self, directory: Path) -> None:
        self._folder = RunFolder(directory / "evaluator")
        self._timeline: Timeline | None = None

    def follow(self, status: ClusterStatus) -> None:
        """Notes where the job's history stands."""
        restored = status.checkpoint.restored_step if status.checkpoint is not None else None
        self._timeline = Timeline(status.run, status.generation, restored or 0)

    def evaluated(self, global_step: int, metrics: Mapping[str, float]) -> None:
        """Writes what was found; what cannot be written is tried again the next time."""
        if self._timeline is not None:
            self._folder.open(self._timeline)
            self._folder.add(global_step, of_evaluation(metrics), time.time())
            self._folder.flush()

    def close(self) -> None:
        """Lets go of the folder."""
        self._folder.close()
