"""A shard's figures in Prometheus' form, made of its present state when they are asked for: a step pays nothing."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Sequence
from concurrent import futures
from importlib.metadata import version
from itertools import accumulate

from prometheus_client import Metric
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.registry import Collector

from grpc_ps.psserver.lead.coordinator import Coordinator
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.tally import STALENESS_RANGES, Tally
from grpc_ps.psserver.replay import Replay
from grpc_ps.psserver.table_memory import TableMemory

PATIENCE = 5.0
"""Seconds for the shard's event loop to say where it stands: less than Prometheus' own 10."""
PHASES = ("EMPTY", "OPENING", "RUNNING", "STOPPED", "RESTORING")
OUTCOMES = ("APPLIED", "LATE", "NON_FINITE", "DONE")
# Upper ends of the ranges that stalenesses are counted in.
_STALENESS_ENDS = tuple((1 << bits) - 1 for bits in range(STALENESS_RANGES - 1))


class ShardCollector(Collector):
    """Reads one shard, and on the lead the job, on the event loop that they belong to.

    Called in the threads of the HTTP server. Where the loop does not answer in time, as while TensorFlow is imported,
    only `grpc_ps_responsive` is told, as 0: a scrape says so then, in place of failing.

    Args:
        loop: the shard's.
        shard, shards: which one this is, of how many.
        coordinator: None on other shards than the lead.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        shard: int,
        shards: int,
        replay: Replay,
        coordinator: Coordinator | None,
    ) -> None:
        self._loop = loop
        self._shard = shard
        self._shards = shards
        self._replay = replay
        self._coordinator = coordinator
        self._version = version("grpc-ps")

    def collect(self) -> Iterable[Metric]:
        """All figures. Blocks until the event loop has said them, at most `PATIENCE` seconds."""
        told = self._told()
        yield _gauge("responsive", "Whether the shard said its figures in time.", float(bool(told)))
        yield from told

    def _told(self) -> list[Metric]:
        reading = self._read()
        try:
            future = asyncio.run_coroutine_threadsafe(reading, self._loop)
        except RuntimeError:  # The loop is closed: the shard is ending.
            reading.close()
            return []
        try:
            return future.result(PATIENCE)
        except futures.TimeoutError:
            future.cancel()
            return []

    async def _read(self) -> list[Metric]:
        told = [*self._of_shard()]
        if self._coordinator is not None:
            told += [*_of_job(self._coordinator), *_of_checkpoints(self._coordinator)]
            told += _of_workers([*self._coordinator.job.members])
        return told

    def _of_shard(self) -> Iterator[Metric]:
        replay, traffic, times = self._replay, self._replay.sessions.traffic, self._replay.times.totals
        role = "lead" if self._coordinator is not None else "follower"
        numbers = {"shard": str(self._shard), "shards": str(self._shards)}
        whole = {**numbers, "role": role, "version": self._version}
        yield InfoMetricFamily("grpc_ps_shard", "Which shard this is.", value=whole)
        plan = replay.plan if replay.opened else None
        yield _gauge("blocks", "Blocks of parameters on this shard.", len(plan.blocks) if plan else 0)
        size = plan.bytes_on(self._shard) if plan else 0
        yield _gauge("value_bytes", "Bytes of the parameters on this shard, without slots and lazy tables.", size)
        yield from _of_tables(replay.tables)
        yield _gauge("staged_bytes", "Memory held for pushes on their way in.", replay.staging.bytes())
        yield _gauge("log_position", "Last entry of the log that this shard carried out.", replay.position)
        yield _gauge("streams", "Training streams that are attached.", len(replay.sessions))
        yield _counter("received_bytes", "Bytes of workers' messages.", traffic.received)
        yield _counter("sent_bytes", "Bytes of messages to workers and readers.", traffic.sent)
        yield _counter("updates", "Updates that this process applied.", times["updates"])
        yield _counter("releases", "Answers with parameters that this process sent.", times["releases"])
        yield _counter("staged_pushes", "Pushes that came in whole.", times["pushes"])
        seconds = CounterMetricFamily("grpc_ps_work_seconds", "Time that the work took.", labels=["phase"])
        for phase in ("stage", "apply", "encode"):
            seconds.add_metric([phase], times[phase])
        yield seconds


def _of_tables(tables: Sequence[TableMemory]) -> Iterator[Metric]:
    rows = GaugeMetricFamily("grpc_ps_table_rows", "Rows of a table that this shard holds.", labels=["table"])
    size = GaugeMetricFamily("grpc_ps_table_bytes", "Bytes of those rows, with their slots.", labels=["table"])
    for table in tables:
        rows.add_metric([table.spec.name], table.held)
        size.add_metric([table.spec.name], table.nbytes)
    if tables:
        yield from (rows, size)


def _of_job(lead: Coordinator) -> Iterator[Metric]:
    job, training = lead.job, lead.job.training
    connected = job.shards.count - len(job.shards.missing())
    yield _gauge("global_step", "Updates applied to the model.", job.step)
    phases = GaugeMetricFamily("grpc_ps_phase", "1 for the phase that the job is in.", labels=["phase"])
    for phase in PHASES:
        phases.add_metric([phase.lower()], float(job.phase == phase))
    yield phases
    yield _gauge("workers", "Workers that take part.", len(job.members))
    yield _gauge("connected_shards", "Shards whose link to the lead is up, the lead included.", connected)
    yield _gauge("learning_rate", "Learning rate of the next update.", training.learning_rate if training else 0.0)
    yield _gauge("paused", "Whether nobody gets work.", float(bool(training and training.paused)))
    yield _staleness(job.members.tally)
    yield _counter("rollbacks", "Times that the job went back to a checkpoint.", lead.rollbacks)
    newest = job.evaluation
    if newest.step >= 0:
        yield _gauge("evaluation_step", "Global step of the newest evaluation.", newest.step)
        metrics = GaugeMetricFamily("grpc_ps_evaluation", "Metrics of the newest evaluation.", labels=["metric"])
        for name, value in newest.metrics.items():
            metrics.add_metric([name], value)
        yield metrics


def _of_checkpoints(lead: Coordinator) -> Iterator[Metric]:
    """Nothing where the job is not saved."""
    saving = lead.job.saving
    if saving is None:
        return
    if saving.committed is not None:
        yield _gauge("checkpoint_step", "Global step of the newest checkpoint.", saving.committed)
    if saving.committed_at is not None:
        age = max(0.0, lead.now() - saving.committed_at)
        yield _gauge("checkpoint_age_seconds", "Time since the newest checkpoint was committed.", age)
    yield _gauge("checkpoint_failing", "Whether the last attempt to save failed.", float(bool(saving.error)))
    yield _counter("checkpoint_attempts", "Checkpoints begun since the lead's start or rollback.", saving.attempts)
    yield _counter("checkpoint_failures", "Those of them that failed.", saving.failures)


def _of_workers(members: Sequence[Member]) -> list[Metric]:
    """One row of each a worker: labels are indices, of which a job has as many as places."""
    labels = ["worker", "outcome"]
    pushes = CounterMetricFamily("grpc_ps_pushes", "Pushes of a worker's life by outcome.", labels=labels)
    losses = GaugeMetricFamily(
        "grpc_ps_worker_loss", "Loss of the batch of a worker's last applied push.", labels=["worker"]
    )
    for member in members:
        worker = str(member.worker)
        for outcome in OUTCOMES:
            pushes.add_metric([worker, outcome.lower()], member.outcomes[outcome])
        if member.loss is not None:
            losses.add_metric([worker], member.loss)
    return [pushes, losses]


def _staleness(tally: Tally) -> Metric:
    text = "Updates between an applied push and the parameters that it was computed with."
    buckets = staleness_buckets(tally.staleness_counts)
    return HistogramMetricFamily("grpc_ps_staleness", text, buckets=buckets, sum_value=tally.total_staleness)


def staleness_buckets(counts: Sequence[int]) -> list[tuple[str, float]]:
    """Counts by range, as Prometheus has them: up to each upper end, and up to infinity."""
    ends = [*map(str, _STALENESS_ENDS), "+Inf"]
    return [*zip(ends, map(float, accumulate(counts)), strict=True)]


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"grpc_ps_{name}", text, value=value)


def _counter(name: str, text: str, value: float) -> CounterMetricFamily:
    return CounterMetricFamily(f"grpc_ps_{name}", text, value=value)
