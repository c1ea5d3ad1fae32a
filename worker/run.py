"""A worker's life: load model and data, join, train, join again where that is right, leave."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from grpc_ps.client import PSClient, PsError, TrainingSession
from grpc_ps.client.shared.errors import DataError, Fenced, RolledBack, UsageError
from grpc_ps.client.shared.logs import event, setup_logging
from grpc_ps.models import DataBundle, DataFileError, Dataset, EndlessDataset, Model, ModelDefaults
from grpc_ps.models.datasets import open_data
from grpc_ps.worker.config import Value, WorkerConfig
from grpc_ps.worker.data import Feed, source
from grpc_ps.worker.device import placed
from grpc_ps.worker.evaluate import Evaluation, Evaluator
from grpc_ps.worker.loading import ModelFactory
from grpc_ps.worker.progress import Progress
from grpc_ps.worker.step import Step
from grpc_ps.worker.trainer import Trainer
from grpc_ps.worker.variables import parameter_specs, read_values

_LOGGER = logging.getLogger("grpc_ps.worker")
# Seconds that the job's end waits for an evaluation that runs.
_LAST_EVALUATION = 60.0


def load_data(model: Model, *, name: str | None, directory: Path | None) -> DataBundle:
    """Loads and checks the model's data whole.

    Raises:
        DataError: a file is missing or not what it should be.
        UsageError: the model does not take that data.
    """
    try:
        return open_data(model.data, name=name, directory=directory)
    except DataFileError as error:
        raise DataError(str(error)) from error
    except ValueError as error:
        raise UsageError(str(error)) from error


def stated_settings(stated: Mapping[str, Value], train: Dataset | EndlessDataset) -> dict[str, Value]:
    """What this worker insists on: the user's flags, and its data, which has to be the same everywhere."""
    return {**stated, "examples": train.examples, "data": train.fingerprint}


def default_settings(stated: Mapping[str, Value], defaults: ModelDefaults) -> dict[str, Value]:
    """What this worker would choose. A number of epochs that the user states replaces the model's number of steps."""
    chosen: dict[str, Value] = {
        "optimizer": defaults.optimizer,
        "learning_rate": defaults.learning_rate,
        "batch_size": defaults.batch_size,
        **defaults.hyper,
    }
    return chosen if "epochs" in stated else {**chosen, "steps": defaults.steps}


def target_step(settings: Mapping[str, Value]) -> int:
    """The job's last global step as far as its settings tell; zero if they do not.

    In a round several batches make one step.
    """
    steps, epochs = int(settings.get("steps", 0)), int(settings.get("epochs", 0))
    if steps or not epochs:
        return steps
    batches = -(-int(settings["examples"]) // int(settings["batch_size"])) * epochs
    return -(-batches // int(settings["workers"])) if settings["mode"] == "sync" else batches


class Worker:
    """One worker process with its model and data, before and between its sessions.

    Args:
        config: the process's settings.
        factory: makes the model; called a second time for evaluation.
        echo: prints a line for people.
        on_session: told of each session that is joined.
        at_end: called when training is done, before the worker leaves: the job can still be read.
    """

    def __init__(
        self,
        config: WorkerConfig,
        factory: ModelFactory,
        echo: Callable[[str], None],
        *,
        on_session: Callable[[TrainingSession], None] = lambda session: None,
        at_end: Callable[[PSClient], None] = lambda client: None,
    ) -> None:
        self._on_session = on_session
        self._at_end = at_end
        self._config = config
        with placed(config.device):
            self._model = factory()
        self._specs = parameter_specs(self._model.variables)
        self._data = load_data(self._model, name=config.data, directory=config.data_dir)
        self._progress = Progress(echo)
        self._run = 0
        self._evaluation = self._make_evaluation(factory)
        evaluate = self._evaluation.maybe if self._evaluation is not None else lambda _: None
        step = Step(self._model, device=config.device)
        self._trainer = Trainer(self._model, step, self._progress, evaluate=evaluate)

    def _make_evaluation(self, factory: ModelFactory) -> Evaluation | None:
        if self._data.test is None:
            return None
        with placed(self._config.device):
            evaluator = Evaluator(factory(), self._data.test, device=self._config.device)
        return Evaluation(evaluator, self._connect, every=self._config.eval_every, tell=self._tell)

    def _connect(self) -> PSClient:
        return PSClient(self._config.addresses, timeout=self._config.connect_timeout)

    def _tell(self, what: str, fields: Mapping[str, object]) -> None:
        if what == "evaluated":
            metrics = {name: value for name, value in fields.items() if name != "global_step"}
            self._progress.evaluated(fields["global_step"], metrics)
        else:
            event(_LOGGER, what, logging.WARNING, **fields)

    def run(self) -> str:
        """Trains until the job is done and returns the summary as JSON.

        Raises:
            PsError: the job cannot be joined, or ended otherwise.
        """
        event(_LOGGER, "data", what=self._data.description)
        try:
            with self._connect() as client:
                metrics = self._sessions(client)
            return self._progress.finish(metrics)
        finally:
            if self._evaluation is not None:
                self._evaluation.close()

    def _sessions(self, client: PSClient) -> dict[str, float]:
        """Trains through as many sessions as it takes. A refusal to join ends the worker, a lost session does not."""
        while True:
            session = self._join(client)
            self._on_session(session)
            try:
                self._train(session)
                self._at_end(client)
                return self._last_evaluation(client, session)
            except (Fenced, RolledBack) as error:
                event(_LOGGER, "joining_again", logging.WARNING, reason=error)
            finally:
                session.leave()

    def _join(self, client: PSClient) -> TrainingSession:
        stated = self._config.stated
        session = client.join(
            self._model.name,
            self._specs,
            stated=stated_settings(stated, self._data.train),
            defaults=default_settings(stated, self._model.defaults),
            index=self._config.index,
            run=self._run,
            on_wait=lambda missing: event(_LOGGER, "waiting", missing=missing),
        )
        setup_logging(f"worker {session.worker}")
        self._run = session.run  # Joining again must not open another job.
        event(_LOGGER, "joined", worker=session.worker, incarnation=session.incarnation, opener=session.opener)
        return session

    def _train(self, session: TrainingSession) -> None:
        settings = session.settings
        # A job that ended before has no settings for a newcomer; then no batch is taken either.
        seed, batch_size = int(settings.get("seed", 0)), int(settings.get("batch_size", 1))
        if session.opener:
            self._model.initialize(seed % 2**63)  # TensorFlow's seeds are signed.
            session.open(read_values(self._model.variables))
        batches = source(self._data.train, batch_size=batch_size, seed=seed)
        self._trainer.train(session, Feed(batches), target=target_step(settings))

    def _last_evaluation(self, client: PSClient, session: TrainingSession) -> dict[str, float]:
        if self._evaluation is None or not _evaluates(client, session):
            return {}
        return self._evaluation.last(self._progress.global_step, _LAST_EVALUATION)


def _evaluates(client: PSClient, session: TrainingSession) -> bool:
    """Whether this worker is the one to evaluate: a short job may end before a heartbeat has told."""
    try:
        workers = client.status().workers
    except PsError:  # The lead may have gone once the job was done.
        return False
    return any(each.evaluator and each.incarnation == session.incarnation for each in workers)
