"""The `worker` command. Flags are checked before TensorFlow is imported or a socket opened."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from grpc_ps.client.shared.flags import (
    MAX_U32,
    Command,
    OneOf,
    Whole,
    check_job_flags,
    connect_timeout_option,
    job_options,
    stated_flags,
    threads_option,
)
from grpc_ps.client.shared.process import prepare_process
from grpc_ps.models.datasets import CHOICES
from grpc_ps.worker.config import Value, WorkerConfig
from grpc_ps.worker.interrupt import Interrupt

# Nothing here may import gRPC, and so no module of errors, when this one is loaded: `main` prepares the process first.


def parse_value(text: str) -> Value:
    """The value of a --model-arg: a whole number, a number or a text, whichever it reads as first."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _parse_arguments(texts: tuple[str, ...]) -> dict[str, Value]:
    arguments: dict[str, Value] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise click.UsageError(f"--model-arg {text}: must be NAME=VALUE")
        if key in arguments:
            raise click.UsageError(f"--model-arg {text}: {key} is given twice")
        arguments[key] = parse_value(value)
    return arguments


def _check_index(index: int | None, stated: Mapping[str, Value]) -> None:
    """Refuses an index that the stated number of workers rules out; the lead checks again with the job's own."""
    limit = stated.get("workers")
    if index is not None and isinstance(limit, int):
        places = limit + int(stated.get("backup", 0))
        if index >= places:
            raise click.UsageError(f"--index {index}: must be 0 to {places - 1} with {places} workers")


def build_config(flags: Mapping[str, Any]) -> WorkerConfig:
    """Checks the flags together and makes the settings of them.

    Raises:
        click.UsageError, UsageError: one line that names the flag and the value.
    """
    from grpc_ps.client import parse_addresses
    from grpc_ps.worker.device import parse_device
    from grpc_ps.worker.loading import check_model

    check_job_flags(flags)
    stated = stated_flags(flags)
    _check_index(flags["index"], stated)
    if flags["ps"] is None and not flags["check"]:
        raise click.UsageError("--ps: must be given: HOST:PORT,..., the lead shard first")
    arguments = _parse_arguments(flags["model_arg"])
    check_model(flags["model"], arguments)
    _check_data(flags["model"], flags["data"], flags["data_dir"])
    return WorkerConfig(
        addresses=parse_addresses(flags["ps"]) if flags["ps"] is not None else (),
        model=flags["model"],
        arguments=arguments,
        stated=stated,
        data=flags["data"],
        data_dir=flags["data_dir"],
        index=flags["index"],
        eval_every=flags["eval_every"] or 0,
        device=parse_device(flags["device"]) if flags["device"] is not None else None,
        threads=flags["threads"],
        connect_timeout=flags["connect_timeout"],
        json=flags["json"],
    )


def _check_data(model: str, name: str | None, directory: Path | None) -> None:
    from grpc_ps import models
    from grpc_ps.models.datasets import choose

    default = models.MODELS[model].data if model in models.MODELS else CHOICES[0]
    try:
        choose(default, name=name, directory=directory)
    except ValueError as error:
        raise click.UsageError(str(error)) from None


@click.command(cls=Command, context_settings={"max_content_width": 120})
@click.option("--ps", metavar="HOST:PORT,...", help="All shards in order, the lead shard first.")
@click.option(
    "--model", required=True, help="A model's name (linear, mnist), file.py:attribute or package.module:attribute."
)
@click.option("--model-arg", multiple=True, metavar="NAME=VALUE", help="Argument of the model; may be repeated.")
@click.option(
    "--data-dir", type=click.Path(path_type=Path), help="Folder with MNIST's files, or with a folder mnist of them."
)
@click.option("--data", type=OneOf(*CHOICES), help="Data that needs no files; digits if there is no --data-dir.")
@job_options()
@click.option("--index", type=Whole(0, MAX_U32), help="This worker's index; any that is free if not given.")
@click.option("--eval-every", type=Whole(1), help="Evaluate on the test set every so many global steps.")
@click.option("--device", metavar="cpu:N|gpu:N", help="Where the model is placed; nothing of it runs elsewhere.")
@threads_option("one a core")
@connect_timeout_option("servers that are not there yet")
@click.option(
    "--check", is_flag=True, help="Check flags, the names of our models and data files, and exit; needs no --ps."
)
@click.option("--json", is_flag=True, help="Print a summary as one line of JSON on stdout, the rest on stderr.")
@click.pass_obj
def worker(interrupt: Interrupt | None, /, **flags: Any) -> int:
    """Trains a model: takes parameters from the shards, computes gradients, and sends them back."""
    config = build_config(flags)
    if flags["check"]:
        check_data(config)
        return 0

    from grpc_ps.client.shared.logs import setup_logging
    from grpc_ps.worker.device import start_tensorflow
    from grpc_ps.worker.loading import model_factory

    setup_logging("worker")
    start_tensorflow(threads=config.threads, device=config.device)
    factory = model_factory(config.model, config.arguments)

    from grpc_ps.worker.run import Worker

    on_session = interrupt.watch if interrupt is not None else lambda session: None
    summary = Worker(config, factory, _printer(config), on_session=on_session).run()
    if config.json:
        click.echo(summary)
    return 0


def check_data(config: WorkerConfig) -> None:
    """Loads the data of one of our models whole, without TensorFlow. A user's model is not imported.

    Raises:
        DataError: a file is missing or not what it should be.
    """
    from grpc_ps import models
    from grpc_ps.client.shared.errors import DataError
    from grpc_ps.models.datasets import open_data

    if config.model in models.MODELS and config.data_dir is not None:
        try:
            open_data(models.MODELS[config.model].data, directory=config.data_dir)
        except models.DataFileError as error:
            raise DataError(str(error)) from None


def _printer(config: WorkerConfig) -> Any:
    stream = sys.stderr if config.json else sys.stdout
    return lambda line: print(line, file=stream, flush=True)


def run(interrupt: Interrupt) -> int:
    """Runs the command; returns its exit code."""
    from grpc_ps.client.shared.errors import Ending

    try:
        code: int = worker.main(prog_name="worker", standalone_mode=False, obj=interrupt)
    except Ending:
        if not interrupt.number:
            raise
        code = 128 + interrupt.number
    return code


def main() -> None:
    """Runs the command and ends the process."""
    prepare_process()
    interrupt = Interrupt()
    interrupt.install()

    from grpc_ps.client.shared.main import run_main

    run_main(lambda: run(interrupt), "worker", at_once=True)
