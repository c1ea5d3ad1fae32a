"""Logging: one event a line on stderr, `HH:MM:SS component event key=value ...`. Never tensor contents or tokens."""

from __future__ import annotations

import json
import logging
import sys

ROOT = "grpc_ps"
"""The logger above all of this project's own."""


def setup_logging(component: str) -> None:
    """Sends this process's events to stderr under `component` ("psserver", "worker 3").

    Called once by each command; calling again replaces the name.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(logging.Formatter(f"%(asctime)s {component} %(message)s", "%H:%M:%S"))
    root = logging.getLogger(ROOT)
    root.handlers[:] = [handler]
    root.setLevel(logging.INFO)
    root.propagate = False


def event(logger: logging.Logger, name: str, level: int = logging.INFO, /, **fields: object) -> None:
    """Logs one event with its fields, in the order given; values with spaces are quoted."""
    if logger.isEnabledFor(level):
        text = " ".join((name, *(f"{key}={_value(value)}" for key, value in fields.items())))
        logger.log(level, "%s", text)


def _value(value: object) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    text = str(value)
    plain = text and text.isprintable() and not any(mark in text for mark in ' "=')
    return text if plain else json.dumps(text)
