"""The trainer: takes parameters and a batch number, computes gradients with TensorFlow, and pushes them.

For programs with a loop of their own: `MonitoredSession` and hooks. They are loaded when they are used, and gRPC with
them, which this process is then prepared for as a command's is (`grpc_ps.client.shared.process`). If TensorFlow is not
there yet it is loaded too, without what it has to say on stderr.
"""

from __future__ import annotations

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from grpc_ps.worker.hooks import (
        CheckpointSaverHook,
        EvaluationHook,
        Hook,
        LoggingHook,
        StepResult,
        StopAtStepHook,
        SummarySaverHook,
    )
    from grpc_ps.worker.monitored import MonitoredSession

__all__ = [
    "CheckpointSaverHook",
    "EvaluationHook",
    "Hook",
    "LoggingHook",
    "MonitoredSession",
    "StepResult",
    "StopAtStepHook",
    "SummarySaverHook",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from grpc_ps.client.shared.process import prepare_process, quiet_stderr

    prepare_process()
    if "tensorflow" not in sys.modules:
        with quiet_stderr():
            import_module("tensorflow")
    home = "monitored" if name == "MonitoredSession" else "hooks"
    return getattr(import_module(f"{__name__}.{home}"), name)
