"""`worker --check`: everything that can be found wrong before a cluster is there."""

from __future__ import annotations

from grpc_ps import models
from grpc_ps.client.shared.errors import DataError
from grpc_ps.models.datasets import open_data
from grpc_ps.worker.config import WorkerConfig


def check(config: WorkerConfig) -> None:
    """Loads the data whole, and the model where it is a user's own or has to fit a file of first values.

    TensorFlow is imported for those only: it takes seconds.

    Raises:
        UsageError: the model cannot be made, or not be shared.
        DataError: a file is missing or not what it should be.
    """
    if config.model not in models.MODELS or config.initial is not None:
        _check_model(config)
    elif config.data_dir is not None:
        try:
            open_data(models.MODELS[config.model].data, directory=config.data_dir)
        except models.DataFileError as error:
            raise DataError(str(error)) from None


def _check_model(config: WorkerConfig) -> None:
    from grpc_ps.worker.device import placed, start_tensorflow
    from grpc_ps.worker.loading import load_data, model_factory

    start_tensorflow(threads=config.threads, device=config.device)
    from grpc_ps.worker.variables import parameter_specs

    with placed(config.device):
        model = model_factory(config.model, config.arguments)()
    specs = parameter_specs(model.variables)
    load_data(model, name=config.data, directory=config.data_dir)
    if config.initial is not None:
        config.initial.check(specs)
