"""What a user's own code has raised, in one line."""

from __future__ import annotations

import signal
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from grpc_ps import models
from grpc_ps.client.shared.errors import PsError, UsageError

_OURS = Path(__file__).parent

USERS_OWN = (Exception, SystemExit)
"""Whatever a user's own code may raise: one that calls `sys.exit` is not to end the process without a word."""


def is_ctrl_c(error: BaseException) -> bool:
    """Whether it is the interrupt of somebody at a terminal, and not one that the code in question raises itself.

    In a command a signal raises nothing (`worker.interrupt`).
    """
    handled = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return isinstance(error, KeyboardInterrupt) and handled


def describe_error(error: BaseException) -> str:
    """The error, and the place in the user's code, which is the innermost outside this package's own."""
    # TensorFlow traces a translation of the code, and raises the same class with a text of many lines. It keeps apart
    # what was raised, and where in the source.
    traced: Any = getattr(error, "ag_error_metadata", None)
    if traced is not None:
        # The innermost first. What is not translated is a library's, called from there.
        places = [(frame.filename, frame.lineno) for frame in traced.translated_stack if frame.is_converted][::-1]
        text = str(traced.cause_message)
    else:
        places = [(frame.filename, frame.lineno) for frame in traceback.extract_tb(error.__traceback__)]
        text = f"{type(error).__name__}: {error}"
    # Neither what imports, nor what of Python is frozen: `exit` is.
    passed = ("importlib", "<frozen")
    theirs = [
        (file, line) for file, line in places if Path(file).parent != _OURS and not any(word in file for word in passed)
    ]
    place = f" ({Path(theirs[-1][0]).name}, line {theirs[-1][1]})" if theirs else ""
    # Keras writes in bold, for terminals.
    return " ".join(click.unstyle(text).split()) + place


@contextmanager
def models_own_errors(name: str) -> Iterator[None]:
    """Names the model, as --model does, in what its own code raises. In one of our models that is a bug, and stays one.

    Raises:
        UsageError: the model, the error, and where.
    """
    try:
        yield
    except PsError:
        raise
    except USERS_OWN as error:
        if name in models.MODELS:
            raise
        raise UsageError(f"--model {name}: {describe_error(error)}") from error
