"""The flags of TensorBoard's summaries: one definition for `worker` and `psctl launch`."""

from __future__ import annotations

import importlib.util
import tempfile
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import click

from grpc_ps.client.shared.flags import Decorated, FilePath, Flag, Whole

SUMMARY_EVERY = 100
"""Global steps from one point of a worker to its next."""
SUMMARY_FLAGS = ("logdir", "summary_every")


def summary_options() -> Callable[[Decorated], Decorated]:
    """Adds --logdir and --summary-every; each becomes a keyword argument, None if it is not given."""
    option = partial(click.option, cls=Flag, topic="TensorBoard")
    folder = option(
        "--logdir",
        type=FilePath(file_okay=False),
        metavar="DIR",
        help="Write summaries there: DIR/worker-N, DIR/job, DIR/eval. The same for all workers.",
    )
    every = option(
        "--summary-every",
        type=Whole(1),
        help=f"Global steps from one point of a worker to its next. Default: {SUMMARY_EVERY}.",
    )
    return lambda command: folder(every(command))


def check_summaries(flags: Mapping[str, Any]) -> None:
    """Raises click.UsageError where summaries are asked for and cannot be written."""
    directory = flags["logdir"]
    if directory is None:
        if flags["summary_every"] is not None:
            raise click.UsageError(f"--summary-every {flags['summary_every']}: needs --logdir")
        return
    if importlib.util.find_spec("tensorboard") is None:
        raise click.UsageError(f"--logdir {directory}: needs TensorBoard: pip install 'grpc-ps[tensorboard]'")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise click.UsageError(f"--logdir {directory}: cannot be written: {error.strerror or error}") from None
