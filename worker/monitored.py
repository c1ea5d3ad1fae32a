"""Training in a program's own loop: what TensorFlow 1.x called a MonitoredTrainingSession."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any

import tensorflow as tf

from grpc_ps.client import PSClient, PsError, Security, TrainingSession
from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.summary_flags import SUMMARY_EVERY
from grpc_ps.models import Array
from grpc_ps.worker.cluster import Cluster, parse_cluster
from grpc_ps.worker.config import Value, WorkerConfig
from grpc_ps.worker.fed import ProgramFeed
from grpc_ps.worker.given import Source, given
from grpc_ps.worker.hooks import EvaluationHook, Hook, StepResult, SummarySaverHook
from grpc_ps.worker.run import Worker
from grpc_ps.worker.session_arguments import NAMELESS, check_process, checked_hooks, in_keywords, stated_by
from grpc_ps.worker.settings import OtherThreads
from grpc_ps.worker.trainer import Trained


class MonitoredSession:
    """This process as a worker of a job, whose steps the program calls; a context manager, of one thread.

        with MonitoredSession(cluster, losses, variables=[w, b], hooks=[StopAtStepHook(1000)]) as session:
            while not session.should_stop():
                result = session.run_step(*next_batch())

    Whoever comes first opens the job, with the first values and the settings; others join it where it is. A session
    that lost its place, or whose cluster went back to a checkpoint, joins again within `run_step`, which then computes
    its batch anew. Between two steps, and when the session has ended, the variables have the values of `global_step`;
    they stay as they are where the job was over before, and its shards have gone.

    Args:
        cluster: where the shards are.
        model: a function of features and labels that returns the loss of each example, with `variables`; or a Keras
            model; a model as `grpc_ps.models.spec` describes it; a function that makes one of these; or a name as
            --model has it.
        variables: what a loss function trains, by name or with names of their own.
        data: None for batches that the program brings to `run_step`; True for the model's own data; else data, or a
            function that returns it, as --data names it (MODELS.md, "Your own data").
        test: examples to evaluate on, arrays (features, labels).
        hooks: told of each step, in this order.
        index: this worker's, any that is free if None.
        timeout: seconds that the shards may be out of reach.
        security: TLS and token.
        settings: of the job, as the worker's flags: `mode="sync", workers=2, optimizer="adam", learning_rate=0.01`.

    Raises (entering it, and `run_step`):
        UsageError: something of that is not possible.
        PsError: the job cannot be joined, or has failed.
    """

    def __init__(
        self,
        cluster: Cluster,
        model: Source,
        *,
        variables: Mapping[str, tf.Variable] | Sequence[tf.Variable] | None = None,
        data: Any = None,
        test: tuple[Array, Array] | None = None,
        hooks: Sequence[Hook] = (),
        index: int | None = None,
        timeout: float = 60.0,
        security: Security | None = None,
        **settings: Value,
    ) -> None:
        addresses, own_index = parse_cluster(cluster)
        check_process(index, timeout, security)
        self._hooks = checked_hooks(hooks)
        summaries = next((hook for hook in self._hooks if isinstance(hook, SummarySaverHook)), None)
        config = WorkerConfig(
            addresses=addresses,
            model=model if isinstance(model, str) else NAMELESS,
            arguments={},
            stated=stated_by(settings, self._hooks, type(self)),
            index=own_index if index is None else index,
            connect_timeout=timeout,
            security=security,
            logdir=summaries.logdir if summaries is not None else None,
            summary_every=summaries.every_steps if summaries is not None else SUMMARY_EVERY,
        )
        with in_keywords():
            factory, bundle = given(config.model, model, variables=variables, data=data, test=test)
        if bundle.test is None and any(isinstance(hook, EvaluationHook) for hook in self._hooks):
            raise UsageError("EvaluationHook: there is nothing to evaluate on; give test=(features, labels)")
        self._feed = ProgramFeed() if data is None else None
        with in_keywords():
            self._worker = Worker(
                config,
                factory,
                lambda line: None,
                on_session=self._joined,
                data=bundle,
                feed=self._feed,
                found=self._found,
                component=lambda name: None,
                still=getattr(cluster, "still", lambda: None),
            )
        self._steps: Iterator[Trained] = iter(())
        self._session: TrainingSession | None = None
        self._client: PSClient | None = None
        self._stopping = False
        self._failure: Exception | None = None
        # Whether the parameters are the job's: those of a job that was over before, whose shards have gone, are not.
        self._holds = False
        self._last = StepResult(global_step=0, local_step=0, loss=math.nan, outcome=None)

    def __enter__(self) -> MonitoredSession:
        self._steps = self._worker.steps()
        first = self._next()
        try:
            if first is None or first.reply.done:
                self._take_last()
            else:
                self._holds = True
            self._last = self._result(first)
            for hook in self._hooks:
                hook.begin(self)
        except BaseException:
            self._leave()
            raise
        return self

    def should_stop(self) -> bool:
        """Whether the job is over, or somebody has called `request_stop`."""
        return self._stopping or self._last.done

    def request_stop(self) -> None:
        """Ends this session, not the job: `should_stop` says so from now on."""
        self._stopping = True

    def run_step(self, *batch: Any) -> StepResult:
        """Computes one step and waits for its answer: with features and labels, or on the job's data.

        Which examples are in a batch that the program brings is its own affair; the job counts it as one. After a
        DataError for what is no batch the session goes on; any other error is its end, and comes again.
        """
        if self._failure is not None:
            raise self._failure
        _ = self.training  # An error before the session is entered.
        if bool(batch) != (self._feed is not None) or len(batch) not in (0, 2):
            wanted = "nothing: the session has data" if self._feed is None else "features and labels"
            raise UsageError(f"run_step takes {wanted}; it got {len(batch)} arguments")
        if self._feed is not None:
            self._feed.put(*batch)
        for hook in self._hooks:
            hook.before_step(self)
        step = self._next()
        # What has no loss is the answer with which the session has joined again.
        while step is not None and step.loss is None and not step.reply.done:
            step = self._next()
        if step is None or step.reply.done:
            self._take_last()
        self._last = self._result(step)
        for hook in self._hooks:
            hook.after_step(self, self._last)
        return self._last

    @property
    def global_step(self) -> int:
        """Updates applied to the model whose parameters are here."""
        return self._last.global_step

    @property
    def worker(self) -> int:
        """This worker's index."""
        return self.training.worker

    @property
    def settings(self) -> Mapping[str, Any]:
        """The job's, by the names of `job.proto`."""
        return self.training.settings

    @property
    def parameters(self) -> Mapping[str, Array]:
        """All of the model's, by name; to be read only, and not while a step runs."""
        return self.training.parameters

    @property
    def training(self) -> TrainingSession:
        """The membership beneath: another one each time the session joins."""
        if self._session is None:
            raise RuntimeError("the session has not joined: use it as a context manager")
        return self._session

    @property
    def client(self) -> PSClient:
        """A client of the cluster, for status, checkpoints and changes; closed with the session."""
        if self._client is None:
            self._client = self._worker.connect()
        return self._client

    def _next(self) -> Trained | None:
        try:
            with in_keywords():
                return next(self._steps, None)
        except OtherThreads as other:
            raise UsageError(
                f"the job computes with {other.threads} threads: set tf.config.threading's intra and inter op"
                " parallelism to that before TensorFlow computes anything"
            ) from None
        except Exception as error:
            self._failure = error
            raise

    def _result(self, step: Trained | None) -> StepResult:
        """What the program is told of a step; None means that there are no more."""
        if step is None:
            return StepResult(
                global_step=self._last.global_step,
                local_step=self._last.local_step,
                loss=math.nan,
                outcome=None,
                values=self._last.values,
                done=True,
            )
        return StepResult(
            global_step=step.reply.global_step,
            local_step=self._last.local_step + (step.loss is not None),
            loss=math.nan if step.loss is None else float(step.loss),
            outcome=step.reply.outcome,
            values=self._worker.shown(self.training),
            done=step.reply.done,
        )

    def _take_last(self) -> None:
        """Reads the values after the last step: no worker is sent those, for none is to compute with them."""
        with suppress(PsError):  # A shard may have gone once the job was done.
            for name, value in self.client.pull().values.items():
                self.parameters[name][...] = value
            self._holds = True

    def _joined(self, session: TrainingSession) -> None:
        self._session = session

    def _found(self, global_step: int, metrics: Mapping[str, float]) -> None:
        for hook in self._hooks:
            if isinstance(hook, EvaluationHook):
                hook.found(global_step, metrics)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                for hook in self._hooks:
                    hook.end(self)
        finally:
            self._leave(finish=error is None and self._last.done)

    def _leave(self, *, finish: bool = False) -> None:
        """Ends the steps: where the job is done, with its last evaluation."""
        try:
            while finish and self._next() is not None:
                pass
        finally:
            close: Callable[[], None] = getattr(self._steps, "close", lambda: None)
            close()
            if self._client is not None:
                self._client.close()
            if self._session is not None and self._holds:
                self._worker.settle(self._session.parameters)
