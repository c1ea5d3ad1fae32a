"""The flags that say which model and data are meant, for all of the `worker` command's forms."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from grpc_ps.client.shared.flags import MAX_U64, Decorated, FilePath, Whole, refusal
from grpc_ps.models.datasets import CHOICES, PARTS
from grpc_ps.worker.config import Value

# Nothing here may import gRPC, and so no module of errors, when this one is loaded: see `worker.cli`.


class Run(Whole):
    """A run id, in hexadecimal as logs and status show it; becomes a number."""

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Shows what it is in --help."""
        return "HEX"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Returns the number, or raises click.UsageError."""
        try:
            number = int(str(value), 16)
        except ValueError:
            number = 0
        if not 0 < number <= MAX_U64:
            raise refusal(param, ctx, value, "must be a run id: 1 to 16 hexadecimal digits")
        return number


def model_options(command: Decorated, *, required: bool = True) -> Decorated:
    """Adds --model and --model-arg."""
    for option in (
        click.option(
            "--model-arg", multiple=True, metavar="NAME=VALUE", help="Argument of the model; may be repeated."
        ),
        click.option(
            "--model",
            required=required,
            help="A model's name (cifar10, embedding, linear, mnist), file.py:attribute or package.module:attribute."
            + ("" if required else " Without it this worker stands by for jobs of `psctl submit`."),
        ),
    ):
        command = option(command)
    return command


def data_options(command: Decorated) -> Decorated:
    """Adds --data-dir, --data and --device."""
    for option in (
        click.option(
            "--device", metavar="cpu:N|gpu:N", help="Where the model is placed; nothing of it runs elsewhere."
        ),
        click.option(
            "--data",
            metavar=f"{'|'.join(CHOICES)}|{PARTS[0]},...|file.py:attribute",
            help="Data that needs no files; without --data-dir too, digits for mnist, synthetic for cifar10. Or, with"
            " --data-dir, the training files of CIFAR-10 that are wanted. Or your own.",
        ),
        click.option(
            "--data-dir",
            type=FilePath(),
            help="Folder with MNIST's or CIFAR-10's published files, or with a folder mnist or cifar-10-batches-bin.",
        ),
    ):
        command = option(command)
    return command


def parse_value(text: str) -> Value:
    """The value of a --model-arg: a whole number, a number or a text, whichever it reads as first."""
    kinds: tuple[Callable[[str], Value], ...] = (int, float)
    for kind in kinds:
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def parse_arguments(texts: tuple[str, ...]) -> dict[str, Value]:
    """The arguments of the model by name.

    Raises:
        click.UsageError: one is not NAME=VALUE, or a name is given twice.
    """
    arguments: dict[str, Value] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.isidentifier():
            raise click.UsageError(f"--model-arg {text}: must be NAME=VALUE")
        if key in arguments:
            raise click.UsageError(f"--model-arg {text}: {key} is given twice")
        arguments[key] = parse_value(value)
    return arguments


def check_data(model: str | None, name: str | None, directory: Path | None) -> None:
    """Refuses data that the model does not take, as far as that is known without the model; None for any of ours.

    Raises:
        click.UsageError: says what excludes each other.
    """
    from grpc_ps import models
    from grpc_ps.models.datasets import ChoiceError, check_name, choose
    from grpc_ps.worker.loading import check_data_place

    if name is not None and ":" in name:
        check_data_place(name)
        return
    try:
        if model is not None and model in models.MODELS:
            choose(models.MODELS[model].data, name=name, directory=directory)
        elif name is not None:
            check_name(name)
    except ChoiceError as error:
        raise click.UsageError(str(error)) from None
