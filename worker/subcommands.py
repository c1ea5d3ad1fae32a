"""`worker placement`, `worker evaluate` and `worker export`: what `psctl`, which has no TensorFlow, asks of a model."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import click

from grpc_ps.client.shared.flags import Command, FilePath, OneOf, connect_timeout_option
from grpc_ps.client.shared.security_flags import security_from_flags, security_options
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.flags import check_data, data_options, model_options, parse_arguments

# Nothing here may import gRPC, and so no module of errors, when this one is loaded: see `worker.cli`.

_SETTINGS = {"max_content_width": 120}


def _config(flags: Mapping[str, Any]) -> WorkerConfig:
    from grpc_ps.client import parse_addresses
    from grpc_ps.worker.device import parse_device
    from grpc_ps.worker.loading import check_model

    addresses = parse_addresses(flags["ps"]) if flags.get("ps") is not None else ()
    arguments = parse_arguments(flags["model_arg"])
    check_model(flags["model"], arguments)
    check_data(flags["model"], flags.get("data"), flags.get("data_dir"))
    return WorkerConfig(
        addresses=addresses,
        model=flags["model"],
        arguments=arguments,
        stated={},
        data=flags.get("data"),
        data_dir=flags.get("data_dir"),
        device=parse_device(flags["device"]) if flags.get("device") is not None else None,
        connect_timeout=flags.get("connect_timeout", 0.0),
        raw=flags.get("raw", False),
        json=flags["json"],
        security=security_from_flags(flags) if "tls_ca" in flags else None,
    )


@click.command(cls=Command, context_settings=_SETTINGS)
@model_options
@click.option("--json", is_flag=True, help="Print one line of JSON.")
@click.pass_obj
def placement(_: object, /, **flags: Any) -> int:
    """Prints the parameters of a model: what a cluster would have to place. Nothing is connected to."""
    config = _config(flags)
    from grpc_ps.worker.device import start_tensorflow

    start_tensorflow(threads=None, device=None)
    from grpc_ps.worker.describe import Parameters

    found = Parameters.of(config)
    click.echo(json.dumps(found.record()) if config.json else found.table())
    return 0


@click.command(cls=Command, context_settings=_SETTINGS)
@click.option("--ps", required=True, metavar="HOST:PORT,...", help="All shards in order, the lead shard first.")
@model_options
@data_options
@connect_timeout_option("servers to send their values")
@security_options()
@click.option("--raw", is_flag=True, help="Of the parameters' values, where the job keeps moving averages of them.")
@click.option("--json", is_flag=True, help="Print one line of JSON.")
@click.pass_obj
def evaluate(_: object, /, **flags: Any) -> int:
    """Prints the metrics of what a cluster has learnt by now, on the test set. Training goes on meanwhile."""
    config = _config(flags)
    from grpc_ps.worker.device import start_tensorflow

    start_tensorflow(threads=None, device=config.device)
    from grpc_ps.worker.describe import Evaluated

    found = Evaluated.of(config)
    click.echo(json.dumps(found.record()) if config.json else found.line())
    return 0


@click.command(cls=Command, context_settings=_SETTINGS)
@click.argument("target", metavar="FILE.keras|DIR", type=FilePath())
@click.option(
    "--weights",
    required=True,
    metavar="FILE",
    type=FilePath(),
    help="The values, a file that psctl export wrote.",
)
@click.option("--format", "form", type=OneOf("keras", "saved-model"), help="Default: by the name.")
@click.option("--force", is_flag=True, help="Replace what is there.")
@model_options
@data_options
@click.option("--json", is_flag=True, help="Print one line of JSON.")
@click.pass_obj
def export(_: object, /, target: Path, weights: Path, form: str | None, force: bool, **flags: Any) -> int:
    """Writes a model with given weights: a Keras model into FILE.keras, any into the folder DIR as a SavedModel.

    The job's state of an optimizer is not written. Where the model is built by its data only, --data says which.
    """
    from grpc_ps.client.shared.export_target import check_target
    from grpc_ps.worker.initial import open_initial

    form = form or ("keras" if target.suffix == ".keras" else "saved-model")
    check_target(target, form, force=force)
    config = _config(flags)
    values = open_initial(weights)
    from grpc_ps.worker.device import start_tensorflow

    start_tensorflow(threads=None, device=config.device)
    from grpc_ps.worker.export import export as write

    done = write(config, values, target, form=form)
    click.echo(json.dumps(done.record()) if config.json else done.line())
    return 0


SUBCOMMANDS: Mapping[str, click.Command] = MappingProxyType(
    {"placement": placement, "evaluate": evaluate, "export": export}
)
