"""What TensorBoard is shown: names and numbers, made of what a worker has counted and of what the lead says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field

import numpy as np
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.plugins.histogram import metadata as histogram
from tensorboard.plugins.scalar import metadata as scalar
from tensorboard.util import tensor_util

from grpc_ps.client import ClusterStatus
from grpc_ps.client.time_shares import shares
from grpc_ps.worker.progress import Mark, Rates

OUTCOMES = ("APPLIED", "LATE", "NON_FINITE")


@dataclass(frozen=True, kw_only=True)
class Point:
    """A worker after one of its steps: where its counts stand, the loss of its last batch, its pushes by outcome.

    `staleness` counts the applied pushes since the point before by their staleness; `at` is when this was, in seconds
    since 1970.
    """

    mark: Mark
    at: float
    loss: float
    outcomes: Mapping[str, int]
    staleness: Mapping[int, int] = field(default_factory=dict)


def of_worker(point: Point, since: Mark | None) -> Summary:
    """A worker's own figures, with its speeds since an earlier mark if there is one."""
    values = {
        "loss": point.loss,
        "local_step": float(point.mark.local_steps),
        **_pushes(point.outcomes),
    }
    if since is not None:
        rates = Rates.between(since, point.mark)
        values |= {"speed/steps_per_second": rates.steps, "speed/examples_per_second": rates.examples}
    return summary(values, {"staleness": [(value, value, n) for value, n in sorted(point.staleness.items())]})


def of_job(now: ClusterStatus, since: ClusterStatus | None) -> Summary:
    """The whole job's figures; speeds, times and staleness are of what came since an earlier reading."""
    passed = (now.uptime_ms - since.uptime_ms) / 1000 if since is not None else 0.0
    steps = now.global_step - since.global_step if since is not None else 0
    values = {
        "learning_rate": now.learning_rate,
        "workers": float(len(now.workers)),
        **_pushes(now.outcomes),
    }
    if passed > 0 and steps >= 0:
        values["speed/global_steps_per_second"] = steps / passed
    for worker, times in shares(now, since).workers.items():
        values |= {f"time/worker-{worker}/{phase}": ms for phase, ms in asdict(times).items()}
    return summary(
        values, {"staleness": staleness_rows(now.staleness_counts, since.staleness_counts if since is not None else ())}
    )


def of_evaluation(metrics: Mapping[str, float]) -> Summary:
    """The metrics of an evaluation, by their own names."""
    return summary(metrics, {})


def _pushes(outcomes: Mapping[str, int]) -> dict[str, float]:
    return {f"pushes/{name.lower()}": float(outcomes.get(name, 0)) for name in OUTCOMES}


def staleness_rows(now: Sequence[int], since: Sequence[int]) -> list[tuple[int, int, int]]:
    """Lowest and highest staleness of each range that was met in between, and how many pushes were in it."""
    before = [*since, *[0] * (len(now) - len(since))]
    counts = [count - known for count, known in zip(now, before, strict=True)]
    return [((1 << place) >> 1, (1 << place) - 1, count) for place, count in enumerate(counts) if count > 0]


def summary(values: Mapping[str, float], histograms: Mapping[str, Sequence[tuple[int, int, int]]]) -> Summary:
    """Scalars by tag, and histograms as rows of lowest value, highest value and count; empty ones are left out."""
    whole = Summary()
    for tag, value in values.items():
        with np.errstate(over="ignore"):
            tensor = tensor_util.make_tensor_proto(np.float32(value))
        whole.value.add(tag=tag, tensor=tensor, metadata=scalar.create_summary_metadata("", ""))
    for tag, rows in histograms.items():
        if rows:
            # A bucket of one value needs some width to be drawn.
            table = np.array([(low - 0.5, high + 0.5, count) for low, high, count in rows], np.float64)
            metadata = histogram.create_summary_metadata("", "")
            whole.value.add(tag=tag, tensor=tensor_util.make_tensor_proto(table), metadata=metadata)
    return whole
