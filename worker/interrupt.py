"""What SIGTERM and SIGINT do to a worker."""

from __future__ import annotations

import os
import signal
import threading
from types import FrameType
from typing import Protocol

# Seconds to leave the job in.
GRACE_SECONDS = 5.0
ENDING = (signal.SIGTERM, signal.SIGINT)


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
        for number in ENDING:
            signal.signal(number, self._taken)
        # A child's signals are not for this process.
        os.register_at_fork(after_in_child=_let_go)
        threading.Thread(target=self._tell, args=(signals,), name="interrupt", daemon=True).start()

    def watch(self, session: Interruptible) -> None:
        """Names the session to tell."""
        self._session = session

    def _taken(self, number: int, frame: FrameType | None) -> None:
        """Nothing: that there is a handler is what lets the signal reach the pipe instead of ending the process."""

    def _tell(self, signals: int) -> None:
        number = _next(signals)
        if self._session is None:
            os._exit(128 + number)
        self.number = number
        try:
            self._session.interrupt(f"ended by {signal.Signals(number).name}")
        finally:
            # The process ends when the main thread has left the job; this thread then ends with it.
            late = threading.Timer(self.grace, os._exit, (128 + number,))
            late.daemon = True
            late.start()
            os._exit(128 + _next(signals))


def _next(signals: int) -> int:
    """Waits for a signal that ends a process. The pipe gets every one that has a handler, a user's own too."""
    while (number := os.read(signals, 1)[0]) not in ENDING:
        pass
    return number


def _let_go() -> None:
    """In a forked child: its signals do again what they always do."""
    signal.set_wakeup_fd(-1)
    for number in ENDING:
        signal.signal(number, signal.SIG_DFL)
