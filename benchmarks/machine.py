"""Where and with what figures were measured."""

from __future__ import annotations

import os
import platform
import subprocess
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

import psutil

_DISTRIBUTIONS = ("grpcio", "protobuf", "tensorflow", "numpy")
_FOLDER = Path(__file__).parent


def about(*, quick: bool) -> dict[str, Any]:
    """Time, form, machine and versions, for JSON."""
    return {
        "quick": quick,
        "begun": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M:%S UTC"),
        "machine": {
            "cores": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
            "cpu": _cpu(),
            "memory_gib": round(psutil.virtual_memory().total / 2**30, 1),
            "system": platform.platform(),
        },
        "versions": {
            "python": platform.python_version(),
            **{name: metadata.version(name) for name in _DISTRIBUTIONS},
            "commit": _commit(),
        },
    }


def _cpu() -> str:
    """The model as the kernel names it; elsewhere the architecture."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    names = (line.partition(":")[2].strip() for line in lines if line.startswith("model name"))
    return next(names, platform.machine())


def _commit() -> str:
    """Of this folder's repository, with "+" if files differ from it; "unknown" outside of one."""
    try:
        commit, changed = (_git(*words) for words in (("rev-parse", "--short", "HEAD"), ("status", "--porcelain")))
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return commit + ("+" if changed else "")


def _git(*words: str) -> str:
    command = ["git", "-C", str(_FOLDER), *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
