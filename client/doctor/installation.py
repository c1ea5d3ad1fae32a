"""What is installed here: Python, and the packages that the project asks for."""

from __future__ import annotations

import importlib.metadata
import sys
from collections.abc import Callable, Sequence

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet

from grpc_ps.client.doctor.check import USAGE, Check, fail, ok

_PROJECT = "grpc-ps"


def check_python(version: str | None = None, wanted: str | None = None) -> Check:
    """Compares this Python with the range that the project supports."""
    version = version or ".".join(map(str, sys.version_info[:3]))
    wanted = wanted or importlib.metadata.metadata(_PROJECT)["Requires-Python"]
    # Of a pre-release too it is known what it can do.
    if SpecifierSet(wanted).contains(version, prereleases=True):
        return ok("python", version)
    return fail("python", f"{version}: grpc-ps needs {wanted}; make a virtual environment with such a Python", USAGE)


def check_packages(
    requirements: Sequence[str] | None = None, version: Callable[[str], str] = importlib.metadata.version
) -> list[Check]:
    """Compares what is installed with what the project asks for. Nothing is imported: TensorFlow takes seconds."""
    texts = importlib.metadata.requires(_PROJECT) if requirements is None else requirements
    found = [Requirement(text) for text in texts or ()]
    return [_check(one, version) for one in found if one.marker is None or one.marker.evaluate({"extra": ""})]


def _check(wanted: Requirement, version: Callable[[str], str]) -> Check:
    try:
        installed = version(wanted.name)
    except importlib.metadata.PackageNotFoundError:
        return fail(wanted.name, f"is not installed: pip install '{wanted}'", USAGE)
    if wanted.specifier.contains(installed, prereleases=True):
        return ok(wanted.name, installed)
    return fail(wanted.name, f"{installed}: grpc-ps needs {wanted.specifier}; pip install '{wanted}'", USAGE)
