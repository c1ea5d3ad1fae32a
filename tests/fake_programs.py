"""Small scripts that a test installs beside psctl in the place of `worker` and `psserver`."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest


def install_programs(folder: Path, monkeypatch: pytest.MonkeyPatch, **scripts: str) -> None:
    """Installs scripts by name in `folder`/bin beside a psctl, and makes the empty `folder`/here the current folder."""
    programs = folder / "bin"
    programs.mkdir()
    for name, script in scripts.items():
        (programs / name).write_text(f"#!{sys.executable}\n{script}")
        (programs / name).chmod(0o755)
    monkeypatch.setattr(sys, "argv", [str(programs / "psctl")])
    (folder / "here").mkdir()
    monkeypatch.chdir(folder / "here")
