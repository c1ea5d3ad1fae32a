"""`worker --check`: everything that can be found wrong before a cluster is there."""

from __future__ import annotations

from grpc_ps import models
from grpc_ps.client.shared.errors import DataError, UsageError
from grpc_ps.client.shared.logs import setup_logging
from grpc_ps.models.datasets import open_data
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.downloading import fetch_data


def check(config: WorkerConfig) -> None:
    """Loads the data whole, and the model where it is a user's own, or has to fit first values or a metric.

    TensorFlow is imported for those only: it takes seconds.

    Raises:
        UsageError: the model cannot be made, not be shared, or has not what a flag needs.
        DataError: a file is missing or not what it should be, or first values are not finite.
    """
    setup_logging("worker")
    own_data = config.data is not None and ":" in config.data
    if config.model not in models.MODELS or own_data or config.initial is not None or "until" in config.stated:
        _check_model(config)
    elif config.data_dir is not None or "epochs" in config.stated:
        fetch_data(models.MODELS[config.model].data, config)
        try:
            data = open_data(models.MODELS[config.model].data, name=config.data, directory=config.data_dir)
        except models.DataFileError as error:
            raise DataError(str(error)) from None
        _check_epochs(config, data.train)


def _check_epochs(config: WorkerConfig, train: models.TrainData) -> None:
    epochs = config.stated.get("epochs")
    if epochs is not None and not train.examples:
        raise UsageError(f"--epochs {epochs}: the data {train.fingerprint!r} has no epochs; set --steps")


def _check_model(config: WorkerConfig) -> None:
    from grpc_ps.worker.device import placed, start_tensorflow
    from grpc_ps.worker.loading import fit, load_data, model_factory

    start_tensorflow(threads=config.threads, device=config.device)
    from grpc_ps.worker.evaluator import Evaluator, check_until
    from grpc_ps.worker.initial import check_initial
    from grpc_ps.worker.settings import NO_OVERLAP, default_settings, until_metric
    from grpc_ps.worker.tables import dense_specs, model_specs, tables_of

    with placed(config.device):
        model = model_factory(config.model, config.arguments)()
    if config.overlap and tables_of(model):
        raise UsageError(NO_OVERLAP)
    default_settings(config.stated, model.defaults, model=config.model)
    fetch_data(model.data, config)
    data = load_data(model, name=config.data, directory=config.data_dir)
    with placed(config.device):
        fit(model, data, name=config.model)
    specs = dense_specs(model_specs(model))
    _check_epochs(config, data.train)
    if config.initial is not None:
        initial = config.initial.of(model)
        check_initial(initial, specs)
        initial.load(specs)
    evaluator = Evaluator(model, data.test, device=config.device) if data.test is not None else None
    check_until(until_metric(config.stated), evaluator, model=config.model)
