"""Fetching a model's data files before they are read, where --download asks for it, and showing how far that is."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, TaskID, TextColumn, TimeRemainingColumn, TransferSpeedColumn
from rich.progress import Progress as Bars

from grpc_ps.client.shared.errors import DataError, UsageError
from grpc_ps.client.shared.logs import event
from grpc_ps.models import DataFileError, DataLoader
from grpc_ps.models.datasets import ChoiceError, Progress, download_data
from grpc_ps.worker.config import WorkerConfig

_LOGGER = logging.getLogger("grpc_ps.worker")
# Parts of a file at each of which a line is due.
_PARTS = 10


def fetch_data(data: str | DataLoader, config: WorkerConfig) -> None:
    """Fetches what is missing in --data-dir of a model's data; nothing unless that is asked for.

    Raises:
        DataError: a file cannot be had, is not what was published, or cannot be written.
        UsageError: these data are not among those that can be downloaded.
    """
    if not config.download or config.data_dir is None:
        return
    try:
        with shown(sys.stderr) as progress:
            download_data(
                data, name=config.data, directory=config.data_dir, base=config.download_url, progress=progress
            )
    except DataFileError as error:
        raise DataError(str(error)) from error
    except ChoiceError as error:
        raise UsageError(str(error)) from error


@contextmanager
def shown(out: TextIO) -> Iterator[Progress]:
    """Gives what is told of progress: it draws bars on a terminal, elsewhere it logs a line at each tenth of a file."""
    if not out.isatty():
        yield _Lines()
        return
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Bars(*columns, TimeRemainingColumn(), console=_Console(file=out)) as bars:
        yield _Drawn(bars)


class _Console(Console):
    """Leaves the cursor as it is: a signal ends the process at once, and a hidden one would stay so."""

    def show_cursor(self, show: bool = True) -> bool:
        """Does nothing."""
        return False


class _Drawn:
    """A bar for each file."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._tasks: dict[str, TaskID] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        if name not in self._tasks:
            self._tasks[name] = self._bars.add_task(name, total=total)
        self._bars.update(self._tasks[name], completed=done)


class _Lines:
    """A line at the beginning of a file and at each tenth of it."""

    def __init__(self) -> None:
        self._said: dict[str, int] = {}

    def __call__(self, name: str, done: int, total: int) -> None:
        part = done * _PARTS // total
        if part > self._said.get(name, -1):
            self._said[name] = part
            event(_LOGGER, "download", file=name, bytes=done, of=total)
