"""Keeps a worker's lease from a thread of its own, so that a slow step does not look like death."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Protocol, SupportsFloat

from grpc_ps.client.shared.errors import Ending, PeerLost, PeerUnreachable, PsError
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire

BEATS_PER_LEASE = 4
"""At least."""
BEAT_SECONDS = 1.0
"""The time between two beats, for what they tell is looked at; longer where many workers may have a place."""
BEATS_A_SECOND = 50
"""Of all these together, which the lead has to answer."""

_LOGGER = logging.getLogger(__name__)


class Lead(Protocol):
    """What takes heartbeats and reports: the `ShardClient` of shard 0."""

    address: str

    def heartbeat(self, request: wire.HeartbeatRequest, timeout: float) -> wire.HeartbeatResponse:
        """Keeps the lease."""

    def report(self, request: wire.ReportRequest) -> None:
        """Tells the result of an evaluation."""


class Listener(Protocol):
    """Is told in the heartbeat's thread."""

    def beat(self, response: wire.HeartbeatResponse) -> None:
        """The lead has answered."""

    def lost(self, error: Exception) -> None:
        """The lease is gone, or the lead, or something else went wrong; no heartbeat follows."""


class Heartbeat:
    """Sends a heartbeat each second, or four times a lease, until it is stopped or the lead refuses.

    It goes on when the job is done: the worker may still read, and the lead leaves when the last lease has ended.
    The lead may be silent for `lost_timeout` seconds, on a monotonic clock, before it counts as lost; what this process
    itself stood still (it was stopped, or its machine was) does not count, for it has not listened. `_telling` is held
    while the listener is told, so that it hears nothing once `stop` has returned; the listener may call `stop`
    itself. What is reported is replaced as a whole, and the rest belongs to the heartbeat's own thread.

    Args:
        places: workers that the job may have; with many of them the lead is asked less often by each.

    Attributes:
        times: where the worker's time went, as the next heartbeats report it; None as long as that is not known.
    """

    def __init__(
        self,
        lead: Lead,
        identity: job_pb2.Identity,
        listener: Listener,
        *,
        lease: float,
        lost_timeout: float,
        places: int = 1,
    ) -> None:
        self._lead = lead
        self._identity = identity
        self._listener = listener
        self._patience = max(lease / BEATS_PER_LEASE, 1.0)
        self._interval = min(lease / BEATS_PER_LEASE, max(BEAT_SECONDS, places / BEATS_A_SECOND))
        self._lost_timeout = lost_timeout
        self._stopped = threading.Event()
        self._telling = threading.RLock()
        self._silent = 0.0
        self._report: tuple[int, SupportsFloat | None] = (0, None)
        self.times: wire.WorkerTimes | None = None
        self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)

    def start(self) -> None:
        """Begins to beat."""
        self._thread.start()

    def stop(self) -> None:
        """Ends the thread without waiting for a call that is under way, whose answer is told to nobody any more.

        What the listener is being told it is told to the end: that is waited for.
        """
        with self._telling:
            self._stopped.set()

    def note(self, local_step: int, loss: SupportsFloat | None) -> None:
        """Sets what the next heartbeats report. Of a loss that is noted each step only those become numbers."""
        self._report = (local_step, loss)

    def ask(self, timeout: float) -> wire.HeartbeatResponse:
        """Sends one heartbeat now, from any thread. Raises PsError."""
        local_step, noted = self._report
        loss = None if noted is None else float(noted)
        request = wire.HeartbeatRequest(id=self._identity, local_step=local_step, loss=loss, times=self.times)
        return self._lead.heartbeat(request, timeout)

    def _run(self) -> None:
        """Runs in the thread. What is not foreseen ends the worker: without heartbeats it would be a ghost."""
        try:
            self._beat()
        except Exception as error:
            if not self._stopped.is_set():  # A channel may be closed under a heartbeat that nobody waits for any more.
                _LOGGER.exception("heartbeat_failed")
                self._tell(partial(self._listener.lost, error))

    def _beat(self) -> None:
        # The first one at once: it tells whether this worker is the one to evaluate.
        wait, done, since = 0.0, False, time.monotonic()
        while not self._stopped.wait(wait):
            try:
                response = self.ask(self._patience)
            except PsError as error:
                if done:
                    return
                since, before = time.monotonic(), since
                self._silent += min(since - before, wait + self._patience)
                if (final := self._final(error)) is not None:
                    self._tell(partial(self._listener.lost, final))
                    return
            else:
                self._silent, since = 0.0, time.monotonic()
                if not done:
                    self._tell(partial(self._listener.beat, response))
                done = response.done
            wait = self._interval

    def _final(self, error: PsError) -> PsError | None:
        """Returns what a failed heartbeat means; None as long as the next one may succeed."""
        if not isinstance(error, (PeerUnreachable, PeerLost, Ending)):
            return error
        if self._silent <= self._lost_timeout:
            return None
        return PeerLost(f"{self._lead.address}: shard 0 has not answered for {self._lost_timeout:g} s ({error})")

    def _tell(self, what: Callable[[], None]) -> None:
        with self._telling:
            if not self._stopped.is_set():
                what()
