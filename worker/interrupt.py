"""What SIGTERM and SIGINT do to a worker."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Protocol

# Seconds to leave the job in.
GRACE_SECONDS = 5.0


class Interruptible(Protocol):
    """What is told of a signal: a `TrainingSession`."""

    def interrupt(self, why: str) -> None:
        """Ends every wait, with an error."""


class Interrupt:
    """Lets a worker leave its job when it is told to end; a second signal, or the end of the grace time, kills it.

    A handler runs in the middle of anything, perhaps of a lock's own code, so it only notes the signal: a thread tells
    the session, whose waits then end. Before there is a session nothing is held and the process ends at once.

    Attributes:
        number: the signal received, 0 before.
        grace: seconds to leave the job in; the command sets it when it knows its flags.
    """

    def __init__(self) -> None:
        self.number = 0
        self.grace = GRACE_SECONDS
        self._session: Interruptible | None = None
        self._received = threading.Event()

    def install(self) -> None:
        """Takes the signals over. In the main thread."""
        signal.signal(signal.SIGTERM, self._handle)
        signal.signal(signal.SIGINT, self._handle)
        threading.Thread(target=self._tell, name="interrupt", daemon=True).start()

    def watch(self, session: Interruptible) -> None:
        """Names the session to tell."""
        self._session = session

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.number or self._session is None:
            os._exit(128 + number)
        self.number = number
        self._received.set()

    def _tell(self) -> None:
        self._received.wait()
        try:
            if self._session is not None:
                self._session.interrupt(f"ended by {signal.Signals(self.number).name}")
        finally:
            # The process ends when the main thread has left the job; this thread then ends with it.
            threading.Event().wait(self.grace)
            os._exit(128 + self.number)
