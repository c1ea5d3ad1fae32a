"""Where the time of a worker's steps goes."""

from __future__ import annotations

import time
from collections.abc import Callable

from grpc_ps.client.shared.stopwatch import Stopwatch
from grpc_ps.protos import parameter_server_pb2 as wire

INPUT, COMPUTE, ENCODE, ANSWER, RECEIVE = _PHASES = ("input", "compute", "encode", "answer", "receive")
"""The phases of a step, as `parameter_server.proto` describes them."""


class StepTimes:
    """Divides the time of a session's steps, from the second one on: the first may have to load and to trace.

    The session's thread measures, and nobody else looks at it.

    Args:
        clock: monotonic, in seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self._watch = Stopwatch(("steps",), _PHASES, clock=clock)
        self._first = True
        self.lap = self._watch.lap
        self.skip = self._watch.skip

    def answer_begins(self) -> None:
        """The first message of an answer is here."""
        self.lap(ANSWER)

    def step(self) -> wire.WorkerTimes | None:
        """Ends a step, for its push is answered; returns the times of all that count, None as long as none does."""
        if self._first:
            self._first = False
            self._watch.clear()
            return None
        self._watch.count("steps")
        return wire.WorkerTimes(**self._watch.totals)
