"""A worker's life: load model and data, join, train, join again where that is right, leave."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import TYPE_CHECKING, SupportsFloat

import numpy as np

from grpc_ps.client import PSClient, PsError, Reply, TrainingSession
from grpc_ps.client.shared.errors import Fenced, Mismatch, RolledBack, UsageError
from grpc_ps.client.shared.faults import Faults
from grpc_ps.client.shared.logs import event, setup_logging
from grpc_ps.models import Array, DataBundle, StreamDataset
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.data import Feed, NumberedFeed, source
from grpc_ps.worker.device import placed
from grpc_ps.worker.downloading import fetch_data
from grpc_ps.worker.evaluation import Evaluation, Report, report_evaluation
from grpc_ps.worker.evaluator import Evaluator, check_until
from grpc_ps.worker.failures import models_own_errors
from grpc_ps.worker.initial import check_initial
from grpc_ps.worker.loading import ModelFactory, fit, load_data
from grpc_ps.worker.passed_over import note_queue
from grpc_ps.worker.progress import Progress
from grpc_ps.worker.settings import (
    NO_OVERLAP,
    OtherThreads,
    default_settings,
    stated_settings,
    target_step,
    until_metric,
)
from grpc_ps.worker.step import Step
from grpc_ps.worker.streams import StreamFeed, shared_out
from grpc_ps.worker.table_step import TableStep
from grpc_ps.worker.tables import dense_specs, model_specs, tables_of
from grpc_ps.worker.trainer import Trained, Trainer
from grpc_ps.worker.variables import read_values, wire_name

if TYPE_CHECKING:  # It needs TensorBoard, which not everybody has.
    from grpc_ps.worker.summaries import Summaries

_LOGGER = logging.getLogger("grpc_ps.worker")
# Seconds that the job's end waits for an evaluation that runs.
_LAST_EVALUATION = 60.0


class Worker:
    """One worker process with its model and data, before and between its sessions.

    Args:
        config: the process's settings.
        factory: makes the model; called a second time for evaluation.
        echo: prints a line for people.
        on_session: told of each session that is joined.
        at_end: called when training is done, before the worker leaves: the job can still be read.
        data: in place of the model's own data.
        feed: in place of the data's batches, for a program that brings each of them.
        found: told each evaluation's global step and metrics, in any thread.
        component: told the name that this worker has among others, for the logs.
        still: called while shards are out of reach before it has joined; what it raises ends the worker.
    """

    def __init__(
        self,
        config: WorkerConfig,
        factory: ModelFactory,
        echo: Callable[[str], None],
        *,
        on_session: Callable[[TrainingSession], None] = lambda session: None,
        at_end: Callable[[PSClient], None] = lambda client: None,
        data: DataBundle | None = None,
        feed: Feed | None = None,
        found: Report = lambda global_step, metrics: None,
        component: Callable[[str], None] = setup_logging,
        still: Callable[[], object] = lambda: None,
    ) -> None:
        self._on_session = on_session
        self._at_end = at_end
        self._found = found
        self._component = component
        self._still = still
        self._config = config
        self._faults = Faults(config.faults, f"worker {'' if config.index is None else config.index}")
        with placed(config.device):
            self._model = factory()
        if data is None:
            fetch_data(self._model.data, config)
        self._data = data or load_data(self._model, name=config.data, directory=config.data_dir)
        with placed(config.device):
            fit(self._model, self._data, name=config.model)
        self._specs = model_specs(self._model)
        # Every worker that names a file checks it: who is going to send its values is not known yet.
        self._initial = config.initial.of(self._model) if config.initial is not None else None
        if self._initial is not None:
            check_initial(self._initial, dense_specs(self._specs))
        self._progress = Progress(echo)
        self._run = config.run
        self._metrics: dict[str, float] = {}
        self._own_feed = feed
        self._stream: StreamFeed | None = None
        self._summaries: Summaries | None = None
        self._evaluator = self._make_evaluator(factory)
        check_until(until_metric(config.stated), self._evaluator, model=config.model)
        self._evaluation = self._make_evaluation()
        evaluate = self._evaluation.maybe if self._evaluation is not None else lambda _: None
        tables = tables_of(self._model)
        if config.overlap and tables:
            raise UsageError(NO_OVERLAP)
        self._step = (TableStep if tables else Step)(self._model, name=config.model, device=config.device)
        at, overlap = self._faults.at, config.overlap
        self._trainer = Trainer(
            self._model, self._step, self._progress, overlap=overlap, evaluate=evaluate, observe=self._observe, at=at
        )

    def _make_evaluator(self, factory: ModelFactory) -> Evaluator | None:
        if self._data.test is None:
            return None
        with placed(self._config.device):
            model = fit(factory(), self._data, name=self._config.model)
            return Evaluator(model, self._data.test, device=self._config.device)

    def _make_evaluation(self) -> Evaluation | None:
        if self._evaluator is None:
            return None
        return Evaluation(
            self._evaluator,
            self.connect,
            evaluated=self._evaluated,
            failed=lambda error: event(_LOGGER, "evaluation_failed", logging.WARNING, error=error),
        )

    def _evaluated(self, global_step: int, metrics: Mapping[str, float]) -> None:
        self._progress.evaluated(global_step, metrics)
        if self._summaries is not None:
            self._summaries.evaluated(global_step, metrics)
        self._found(global_step, metrics)

    def shown(self, session: TrainingSession) -> dict[str, float]:
        """The values of the variables that the model shows, as they are in the session."""
        return self._trainer.shown(session.parameters)

    def settle(self, values: Mapping[str, Array]) -> None:
        """Gives the model's variables these values, and memory of their own: no session writes to them any more."""
        for variable in self._model.variables:
            variable.assign(np.array(values[wire_name(variable)]))

    def _observe(self, reply: Reply, loss: SupportsFloat) -> None:
        if self._summaries is not None:
            self._summaries.step(reply, loss, self._progress)

    def _make_summaries(self, client: PSClient) -> Summaries | None:
        if self._config.logdir is None:
            return None
        from grpc_ps.worker.summaries import Summaries

        return Summaries(self._config.logdir, self._config.summary_every, client.status)

    def connect(self) -> PSClient:
        """A client of the job's cluster, to be closed by the caller."""
        config = self._config
        return PSClient(config.addresses, timeout=config.connect_timeout, security=config.security, faults=self._faults)

    def run(self) -> str:
        """Trains until the job is done and returns the summary as JSON.

        Raises:
            PsError: the job cannot be joined, or ended otherwise.
            OtherThreads: this process cannot compute as the job does; another one can.
        """
        for _ in self.steps():
            pass
        return self._progress.finish(self._metrics)

    def steps(self) -> Iterator[Trained]:
        """Trains step by step, as `Trainer.steps` through as many sessions as it takes.

        Ends when the job does, raising what `run` does; closing it leaves the job.
        """
        event(_LOGGER, "data", what=self._data.description)
        with self.connect() as client:
            self._summaries = self._make_summaries(client)
            try:
                yield from self._sessions(client)
            finally:
                # Before the client, which an evaluation's report needs, and before the summary, the last line.
                for beside in (self._evaluation, self._summaries):
                    if beside is not None:
                        beside.close()

    def _sessions(self, client: PSClient) -> Iterator[Trained]:
        """Trains through as many sessions as it takes. A refusal to join ends the worker, a lost session does not."""
        while True:
            session = self._join(client)
            self._on_session(session)
            try:
                yield from self._train(session)
                self._at_end(client)
                self._metrics = self._last_evaluation(client, session)
                if self._summaries is not None:
                    self._summaries.end(self._progress)
                return
            except (Fenced, RolledBack) as error:
                event(_LOGGER, "joining_again", logging.WARNING, reason=error)
            finally:
                session.leave()

    def _join(self, client: PSClient) -> TrainingSession:
        try:
            session = client.join(
                self._model.name,
                self._specs,
                stated=stated_settings(self._config, self._data.train),
                defaults=default_settings(self._config.stated, self._model.defaults, model=self._config.model),
                index=self._config.index,
                run=self._run,
                # A warning, which programs see that have not set up logging.
                on_wait=lambda missing: event(_LOGGER, "waiting", logging.WARNING, missing=missing),
                still=self._still,
            )
        except Mismatch as error:
            if self._config.overlap and "mode: " in str(error):
                raise Mismatch(f"--overlap, which is for async: {error}") from error
            raise
        self._component(f"worker {session.worker}")
        if not self._run:
            note_queue(client.jobs)
        self._run = session.run  # Joining again must not open another job.
        event(_LOGGER, "joined", worker=session.worker, incarnation=session.incarnation, opener=session.opener)
        return session

    def _train(self, session: TrainingSession) -> Iterator[Trained]:
        self._adopt(session)
        if self._summaries is not None:
            self._summaries.begin(session)
        if session.opener:
            session.open(self._first_values(session))
        return self._trainer.steps(session, self._feed(session), target=target_step(session.settings))

    def _adopt(self, session: TrainingSession) -> None:
        """Takes what the job's settings say of this process; they are empty for a job that had ended before."""
        settings = session.settings
        threads = int(settings.get("threads", 0))
        if threads and threads != self._config.threads:
            raise OtherThreads(threads)
        if isinstance(self._step, Step):
            self._step.seed = _signed(int(settings.get("seed", 0)))
        check_until(until_metric(settings), self._evaluator, model=self._config.model)
        if self._evaluation is not None:
            self._evaluation.begin(int(settings.get("eval_every", 0)), partial(report_evaluation, session))
            session.on_evaluator = self._evaluation.maybe

    def _first_values(self, session: TrainingSession) -> Mapping[str, Array]:
        if self._initial is not None:
            event(_LOGGER, "init_from", file=self._initial.path)
            return self._initial.load(dense_specs(self._specs))
        with models_own_errors(self._config.model):
            self._model.initialize(_signed(int(session.settings["seed"])))
        return read_values(self._model.variables)

    def _feed(self, session: TrainingSession) -> Feed:
        if self._own_feed is not None:
            return self._own_feed
        train, settings = self._data.train, session.settings
        # A job that had ended before gives no settings; then no batch is taken either.
        seed, batch_size = int(settings.get("seed", 0)), int(settings.get("batch_size", 1))
        if not isinstance(train, StreamDataset):
            return NumberedFeed(source(train, batch_size=batch_size, seed=seed))
        if self._stream is None or self._stream.share != session.worker:
            train = shared_out(train, settings)
            self._stream = StreamFeed(train, batch_size=batch_size, seed=seed, share=session.worker)
        return self._stream

    def _last_evaluation(self, client: PSClient, session: TrainingSession) -> dict[str, float]:
        if self._evaluation is None or not _evaluates(client, session):
            return {}
        return self._evaluation.last(self._progress.global_step, _LAST_EVALUATION)


def _signed(seed: int) -> int:
    """The seed as TensorFlow takes it."""
    return seed % 2**63


def _evaluates(client: PSClient, session: TrainingSession) -> bool:
    """Whether this worker is the one to evaluate: a short job may end before a heartbeat has told."""
    try:
        workers = client.status().workers
    except PsError:  # The lead may have gone once the job was done.
        return False
    return any(each.evaluator and each.incarnation == session.incarnation for each in workers)
