"""What SIGTERM and SIGINT do to a worker."""

from __future__ import annotations

import os
import select
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

    Python runs handlers in the main thread alone, and only between its instructions: during a long TensorFlow
    operation that is never. So a thread reads the signals from a pipe, which the system's own handler writes to. It
    tells the session, whose waits then end. Before there is a session nothing is held and the process ends at once.

    Attributes:
        number: the signal received, 0 before.
        grace: seconds to leave the job in; the command sets it when it knows its flags.
    """

    def __init__(self) -> None:
        self.number = 0
        self.grace = GRACE_SECONDS
        self._session: Interruptible | None = None

    def install(self) -> None:
        """Takes the signals over. In the main thread."""
        signals, written = os.pipe()
        os.set_blocking(written, False)
        signal.set_wakeup_fd(written, warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, self._taken)
        threading.Thread(target=self._tell, args=(signals,), name="interrupt", daemon=True).start()

    def watch(self, session: Interruptible) -> None:
        """Names the session to tell."""
        self._session = session

    def _taken(self, number: int, frame: FrameType | None) -> None:
        """Nothing: that there is a handler is what lets the signal reach the pipe instead of ending the process."""

    def _tell(self, signals: int) -> None:
        number = os.read(signals, 1)[0]
        if self._session is None:
            os._exit(128 + number)
        self.number = number
        try:
            self._session.interrupt(f"ended by {signal.Signals(number).name}")
        finally:
            # The process ends when the main thread has left the job; this thread then ends with it.
            again, _, _ = select.select([signals], [], [], self.grace)
            os._exit(128 + (os.read(signals, 1)[0] if again else number))
