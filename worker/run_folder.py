"""A run folder of TensorBoard's that is written when that is possible."""

from __future__ import annotations

import logging
from collections import deque
from pathlib import Path

from tensorboard.compat.proto.summary_pb2 import Summary

from grpc_ps.client.shared.logs import event
from grpc_ps.worker.event_folder import MAX_PENDING, EventFolder, FolderTaken, Timeline

_LOGGER = logging.getLogger("grpc_ps.worker")
# Tries in which whoever wrote a folder before should have noticed that it is another one's turn.
_HANDING_OVER = 30


class RunFolder:
    """Opens an `EventFolder` as soon as that can be had, and keeps what is to be written until it is.

    What goes wrong is told once, until it goes well again: a full disk must not fill the log too. One thread uses it.

    Args:
        folder: where.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._timeline: Timeline | None = None
        self._events: EventFolder | None = None
        self._waiting: deque[tuple[int, Summary, float]] = deque(maxlen=MAX_PENDING)
        self._failures = 0

    def open(self, timeline: Timeline) -> None:
        """What is added from now on is of that timeline; does nothing if it is already."""
        if self._timeline != timeline:
            self.close()
            self._timeline = timeline

    def add(self, step: int, summary: Summary, at: float) -> None:
        """Takes the values of a step, and when it was, in seconds since 1970."""
        self._waiting.append((step, summary, at))

    def flush(self) -> None:
        """Writes what was taken; what cannot be written now waits for the next call."""
        if self._timeline is None:
            return
        try:
            if self._events is None and self._waiting:
                self._events = EventFolder(self._folder, self._timeline)
            if self._events is not None:
                while self._waiting:
                    self._events.add(*self._waiting.popleft())
                self._events.flush()
        except OSError as error:
            self._failures += 1
            if self._failures == (_HANDING_OVER if isinstance(error, FolderTaken) else 1):
                why = f"{error.strerror or error}; it is tried again"
                event(_LOGGER, "summaries_not_written", logging.WARNING, folder=self._folder, why=why)
        else:
            self._failures = 0

    def close(self) -> None:
        """Writes what can be written, and lets go of the folder."""
        self.flush()
        self._waiting.clear()
        self._timeline = None
        events, self._events = self._events, None
        if events is not None:
            events.close()
