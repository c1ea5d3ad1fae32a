"""What a user's own code has raised, in one line."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click

from grpc_ps import models
from grpc_ps.client.shared.errors import PsError, UsageError

_OURS = Path(__file__).parent


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
    theirs = [(file, line) for file, line in places if Path(file).parent != _OURS and "importlib" not in file]
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
    except Exception as error:  # Whatever a user's model raises.
        if name in models.MODELS:
            raise
        raise UsageError(f"--model {name}: {describe_error(error)}") from error
