"""What a worker does that TF_CONFIG makes an evaluator: it evaluates the job beside training, and trains nothing."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from grpc_ps.client import ClusterStatus, PSClient
from grpc_ps.client.shared.errors import JobFailed, PeerLost, PeerUnreachable, UsageError
from grpc_ps.client.shared.logs import event
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.evaluation import Evaluation
from grpc_ps.worker.evaluator import Evaluator
from grpc_ps.worker.loading import ModelFactory, model_with_data
from grpc_ps.worker.progress import metrics_text

if TYPE_CHECKING:  # It needs TensorBoard, which not everybody has.
    from grpc_ps.worker.evaluator_summaries import EvaluatorSummaries

_LOGGER = logging.getLogger("grpc_ps.worker")
# Seconds between two looks at the job.
_INTERVAL = 2.0
# Phases in which there are values to evaluate.
_OPEN = ("running", "stopped")


def evaluate_beside(
    config: WorkerConfig, factory: ModelFactory, echo: Callable[[str], None], *, interval: float = _INTERVAL
) -> int | None:
    """Evaluates every `--eval-every` global steps of the job until that ends; without, whenever there is a newer step.

    It is no member of the job, so neither training nor the job's end waits for it: the last step's metrics are the
    workers' to tell. Returns the last step that it evaluated, None for none.

    Raises:
        UsageError: there is no test set to evaluate on.
        PeerUnreachable: the shards never came, within --connect-timeout.
        JobFailed: the job has failed; carries its exit code.
    """
    model, data = model_with_data(config, factory)
    test = data.test
    if test is None:
        raise UsageError(f"TF_CONFIG: task.type evaluator: the data of --model {config.model} has no test set")
    steps: list[int] = []
    written = _written(config.logdir)

    def connect() -> PSClient:
        return PSClient(config.addresses, timeout=config.connect_timeout, security=config.security)

    def evaluated(global_step: int, metrics: Mapping[str, float]) -> None:
        steps.append(global_step)
        if written is not None:
            written.evaluated(global_step, metrics)
        echo(f"evaluator: evaluation at global_step {global_step}: {metrics_text(metrics)} ({test.examples} examples)")

    evaluation = Evaluation(
        Evaluator(model, test, device=config.device),
        connect,
        evaluated=evaluated,
        failed=lambda error: event(_LOGGER, "evaluation_failed", logging.WARNING, error=error),
    )
    try:
        _follow(connect, evaluation, config.connect_timeout, interval, written.follow if written else lambda _: None)
    finally:
        evaluation.close()
        if written is not None:
            written.close()
    return steps[-1] if steps else None


def _written(logdir: Path | None) -> EvaluatorSummaries | None:
    if logdir is None:
        return None
    from grpc_ps.worker.evaluator_summaries import EvaluatorSummaries

    return EvaluatorSummaries(logdir)


def _follow(
    connect: Callable[[], PSClient],
    evaluation: Evaluation,
    seconds: float,
    interval: float,
    seen: Callable[[ClusterStatus], None],
) -> None:
    """Looks at the job until it has ended.

    A lead that is gone has ended, well as far as one can tell; but where the job can go on from a checkpoint, it gets
    `seconds` to come back in.
    """
    last: ClusterStatus | None = None
    heard = time.monotonic()

    def may_return() -> bool:
        waits = last is not None and can_go_on(last) and time.monotonic() - heard < seconds
        if waits:
            event(_LOGGER, "waiting", missing=client.addresses[0])
        return waits

    with connect() as client:
        _await_lead(client, seconds, interval)
        for last in client.watch(interval, may_return=may_return):
            heard = time.monotonic()
            if last.phase in _OPEN:
                seen(last)
                evaluation.begin(int(last.settings.get("eval_every", 0)) or 1, _report_nothing)
                evaluation.maybe(last.global_step)
    if last is not None and last.exit_code:
        raise JobFailed(f"the job has failed with exit code {last.exit_code}: {last.reason}", exit_code=last.exit_code)


def can_go_on(status: ClusterStatus) -> bool:
    """Whether a job that looked like this goes on when its lead is started again: it is saved, and not at its end."""
    steps = int(status.settings.get("steps", 0))
    at_end = status.phase == "stopped" or 0 < steps <= status.global_step
    return status.checkpoint is not None and not at_end


def _await_lead(client: PSClient, seconds: float, interval: float) -> None:
    """Waits for the lead shard to be there."""
    deadline, said = time.monotonic() + seconds, False
    while True:
        try:
            client.status()
            return
        except (PeerUnreachable, PeerLost):
            if time.monotonic() > deadline:
                raise
        if not said:
            said = True
            event(_LOGGER, "waiting", missing=client.addresses[0])
        time.sleep(interval)


def _report_nothing(global_step: int, metrics: Mapping[str, float]) -> None:
    """The lead takes reports of its members alone."""
