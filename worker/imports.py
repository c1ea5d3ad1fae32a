"""Finding what a flag names as file.py:attribute or package.module:attribute, in a user's own code."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.client.shared.flags import did_you_mean
from grpc_ps.worker.failures import USERS_OWN, describe_error, is_ctrl_c

# Names that an error lists: a module of somebody else's may have hundreds.
_SHOWN = 10


def check_place(flag: str, where: str, attribute: str) -> None:
    """Refuses what cannot be imported, without trying. `flag` is the flag with its value.

    Raises:
        UsageError: it has another form, or there is no such file.
    """
    if not where or not attribute.isidentifier():
        raise UsageError(f"{flag}: expected file.py:attribute or package.module:attribute")
    if where.endswith(".py") and not Path(where).is_file():
        raise UsageError(f"{flag}: there is no file {where}")


def import_place(flag: str, where: str, *, as_module: str) -> ModuleType:
    """Imports a file, as a module of that name, or a module. A file is run each time.

    Raises:
        UsageError: that fails, with what was raised.
    """
    try:
        return _import_file(Path(where), as_module) if where.endswith(".py") else _import_module(where)
    except (*USERS_OWN, KeyboardInterrupt) as error:
        if is_ctrl_c(error):
            raise
        raise UsageError(f"{flag}: cannot import {where}: {describe_error(error)}") from error


def _import_file(path: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # Dataclasses and pickles in the file look for their module there.
    spec.loader.exec_module(module)
    return module


def _import_module(where: str) -> ModuleType:
    if "" not in sys.path and str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))  # As `python -m` has it; a console script does not.
    return importlib.import_module(where)


def find_attribute(flag: str, module: ModuleType, attribute: str, *, wanted: Callable[[Any], bool] = callable) -> Any:
    """The module's attribute; an error lists those that are `wanted`.

    Raises:
        UsageError: there is none of that name.
    """
    if not hasattr(module, attribute):
        public = sorted(key for key, value in vars(module).items() if wanted(value) and not key.startswith("_"))
        hint = did_you_mean(attribute, public)
        more = f" and {len(public) - _SHOWN} more" if len(public) > _SHOWN else ""
        raise UsageError(f"{flag}: no {attribute}{hint}; there are: {', '.join(public[:_SHOWN]) or 'none'}{more}")
    return getattr(module, attribute)
