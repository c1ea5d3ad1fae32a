"""What a user's own code has raised, in one line."""

from __future__ import annotations

import traceback
from pathlib import Path


def describe_error(error: BaseException) -> str:
    """The place in the user's code, which is the innermost outside this package's own, and the error."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = Path(__file__).parent
    theirs = [frame for frame in frames if Path(frame.filename).parent != ours and "importlib" not in frame.filename]
    place = f"{Path(theirs[-1].filename).name}:{theirs[-1].lineno}: " if theirs else ""
    text = " ".join(str(error).split())
    return f"{place}{type(error).__name__}: {text}"
