"""The flags for the lead's patience with its peers: one definition for `psserver` and `psctl launch`."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import click

from grpc_ps.client.shared.flags import Decorated, Decorator, Real


def _limit_flags() -> dict[str, Decorator[Any]]:
    """By the names of the keyword arguments."""
    option = partial(click.option, type=Real(above=0), show_default=True)
    return {
        "lease": option("--lease", default=10.0, help="Seconds of silence after which a worker is lost."),
        "link_timeout": option(
            "--link-timeout", default=10.0, help="Seconds without its link after which a shard is lost."
        ),
        "start_timeout": option("--start-timeout", default=300.0, help="Sync: seconds to wait for the workers."),
        "rejoin_timeout": option(
            "--rejoin-timeout", default=60.0, help="Sync: seconds to wait for a lost worker's replacement."
        ),
        "snapshot_timeout": option(
            "--snapshot-timeout", default=30.0, help="Seconds for which a snapshot is kept for a reader."
        ),
        "call_timeout": option(
            "--call-timeout",
            default=10.0,
            help="Seconds for a caller's first message, and for the log to bring what a caller waits for.",
        ),
        "grace": grace_option("Seconds that the end may take, of the job or by a signal."),
    }


def grace_option(text: str) -> Decorator[Any]:
    """Adds --grace; `text` says for people what takes that long."""
    return click.option("--grace", type=Real(above=0), default=5.0, show_default=True, help=text)


LIMIT_FLAGS = tuple(_limit_flags())


def limit_options() -> Callable[[Decorated], Decorated]:
    """Adds the flags to a click command; each becomes a keyword argument with its default."""

    def add(command: Decorated) -> Decorated:
        flags = _limit_flags()
        for name in reversed(LIMIT_FLAGS):
            command = flags[name](command)
        return command

    return add
