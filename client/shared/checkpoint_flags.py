"""The flags of checkpoints: one definition for `psserver` and `psctl launch`, which passes them on to every shard."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import click

from grpc_ps.client.shared.flag_forms import best_by
from grpc_ps.client.shared.flags import Decorated, Decorator, FilePath, Flag, Real, Whole, flag_of

# Checkpoints to keep, and seconds for a lost shard to come back and for a checkpoint to be written.
KEEP = 3
RECOVERY_SECONDS = 120.0
CHECKPOINT_SECONDS = 600.0


@dataclass(frozen=True, kw_only=True)
class CheckpointSettings:
    """Where and when the shards save the job, and what they do with what is there.

    Attributes:
        directory: the folder of checkpoints, the same for all shards.
        steps: global steps from one checkpoint to the next; None for none by steps.
        seconds: seconds from one to the next; None for none by time. One is saved at step 0 and at the end anyway.
        keep: how many are kept.
        best: the metric whose best checkpoint is kept beside those; empty for none. `best_rises` says whether more is
            better.
        restore: whether a folder without checkpoints is refused.
        recovery: seconds for a lost shard to come back.
        timeout: seconds for one checkpoint to be written.
    """

    directory: Path
    steps: int | None = None
    seconds: float | None = None
    keep: int = KEEP
    best: str = ""
    best_rises: bool = True
    restore: bool = False
    recovery: float = RECOVERY_SECONDS
    timeout: float = CHECKPOINT_SECONDS


def _checkpoint_flags() -> dict[str, Decorator[Any]]:
    """By the names of the keyword arguments. A flag that is not given is None."""
    option = partial(click.option, cls=Flag, topic="Checkpoints")
    folder = FilePath()
    best_help = (
        "Keep the best one by an evaluation too: accuracy, loss. 'METRIC>' or 'METRIC<' (quoted for the shell) where"
        " the name does not say the direction."
    )
    return {
        "checkpoint_dir": option(
            "--checkpoint-dir", type=folder, metavar="DIR", help="Folder to save in, and to go on from what is there."
        ),
        "checkpoint_steps": option(
            "--checkpoint-steps", type=Whole(1), help="Global steps between two. Step 0 and the end are saved anyway."
        ),
        "checkpoint_secs": option("--checkpoint-secs", type=Real(above=0), help="Seconds between two."),
        "keep": option("--keep", type=Whole(1, 1_000_000), help=f"How many to keep. Default: {KEEP}."),
        "keep_best": option("--keep-best", metavar="METRIC[>|<]", callback=best_by, help=best_help),
        "restore": option(
            "--restore", is_flag=True, default=None, help="Only go on from a checkpoint, never start anew."
        ),
        "recovery_timeout": option(
            "--recovery-timeout",
            type=Real(above=0),
            help=f"Seconds for a lost shard to come back. Default: {RECOVERY_SECONDS:g}.",
        ),
        "checkpoint_timeout": option(
            "--checkpoint-timeout",
            type=Real(above=0),
            help=f"Seconds for one to be written. Default: {CHECKPOINT_SECONDS:g}.",
        ),
    }


CHECKPOINT_FLAGS = tuple(_checkpoint_flags())


def checkpoint_options() -> Callable[[Decorated], Decorated]:
    """Adds the flags of checkpoints to a click command; each becomes a keyword argument, None if it is not given."""

    def add(command: Decorated) -> Decorated:
        flags = _checkpoint_flags()
        for name in reversed(CHECKPOINT_FLAGS):
            command = flags[name](command)
        return command

    return add


def checkpoint_settings(flags: Mapping[str, Any]) -> CheckpointSettings | None:
    """Makes the settings of the flags; None without --checkpoint-dir.

    Raises:
        click.UsageError: a flag that has no effect without --checkpoint-dir.
    """
    stated = {name: flags[name] for name in CHECKPOINT_FLAGS if flags.get(name) is not None}
    directory = stated.get("checkpoint_dir")
    if directory is None:
        for name in stated:
            raise click.UsageError(f"{flag_of(name)}: needs --checkpoint-dir")
        return None
    best = stated.get("keep_best", "")
    return CheckpointSettings(
        directory=directory,
        steps=stated.get("checkpoint_steps"),
        seconds=stated.get("checkpoint_secs"),
        keep=stated.get("keep", KEEP),
        best=best[:-1],
        best_rises=not best.endswith("<"),
        restore=bool(stated.get("restore")),
        recovery=stated.get("recovery_timeout", RECOVERY_SECONDS),
        timeout=stated.get("checkpoint_timeout", CHECKPOINT_SECONDS),
    )
