"""What a program gives to a `MonitoredSession`, checked before anything is connected to."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import click
import tensorflow as tf

from grpc_ps.client import Security
from grpc_ps.client.shared.errors import PsError, UsageError
from grpc_ps.client.shared.flags import MAX_U32
from grpc_ps.client.shared.job_settings import by_keyword, checked_settings
from grpc_ps.client.shared.summary_flags import check_summaries
from grpc_ps.worker.config import Value
from grpc_ps.worker.hooks import Hook, SummarySaverHook

NAMELESS = "model"
"""What stands for a model that is an object where a name is asked for."""
_TOLD = ("settings", "begin", "before_step", "after_step", "end")


@contextmanager
def in_keywords() -> Iterator[None]:
    """Has errors name keywords of the session where they would name flags of the worker."""
    try:
        yield
    except PsError as error:
        error.args = (by_keyword(str(error).replace(f"--model {NAMELESS}: ", "model: ")),)
        raise


def checked_hooks(hooks: Any) -> tuple[Hook, ...]:
    """The hooks, each of which can be told what `Hook` is told.

    Raises:
        UsageError: what is given is no list of hooks, or the folder of summaries cannot be written.
    """
    if not isinstance(hooks, Iterable) or isinstance(hooks, (str, Mapping)):
        raise UsageError(f"hooks: must be a list of hooks, as [StopAtStepHook(1000)]; it is {_shown(hooks)}")
    found = tuple(hooks)
    for number, hook in enumerate(found, 1):
        if isinstance(hook, type) or not all(callable(getattr(hook, name, None)) for name in _TOLD):
            text = f"item {number} of {len(found)} is {_shown(hook)}; must be a Hook, as StopAtStepHook(1000)"
            raise UsageError(f"hooks: {text}")
        if isinstance(hook, SummarySaverHook):
            _check_folder(hook)
    return found


def _check_folder(hook: SummarySaverHook) -> None:
    try:
        check_summaries({"logdir": hook.logdir})
    except click.UsageError as error:
        raise UsageError(error.format_message().replace("--logdir", "SummarySaverHook: logdir")) from None


def stated_by(settings: Mapping[str, Any], hooks: Sequence[Hook], keywords: Callable[..., Any]) -> dict[str, Value]:
    """What the program insists on, by itself and by its hooks. `keywords` is who takes the settings.

    Raises:
        UsageError: a setting that there is not, or a value that it cannot have; what a hook states is stated otherwise.
    """
    stated = dict(settings)
    for hook in hooks:
        for name, value in hook.settings().items():
            if stated.setdefault(name, value) != value:
                raise UsageError(f"{name}: a hook states {value!r}, and {stated[name]!r} is stated too")
    checked = checked_settings(stated, others=list(inspect.signature(keywords).parameters))
    threads = tf.config.threading.get_intra_op_parallelism_threads()
    if threads:
        checked.setdefault("threads", threads)
    return checked


def check_process(index: Any, timeout: Any, security: Any) -> None:
    """Refuses what no worker process can have. Raises UsageError."""
    if index is not None and (isinstance(index, bool) or not isinstance(index, int) or not 0 <= index <= MAX_U32):
        raise UsageError(f"index {index!r}: must be a whole number from 0, or None for any that is free")
    if not isinstance(timeout, (int, float)) or not 0 < timeout < math.inf:
        raise UsageError(f"timeout {timeout!r}: must be a finite number of seconds above 0")
    if security is not None and not isinstance(security, Security):
        raise UsageError(f"security: must be a Security, or None; it is {_shown(security)}")


def _shown(value: Any) -> str:
    return f"the class {value.__name__}" if isinstance(value, type) else f"{value!r}, of type {type(value).__name__}"
