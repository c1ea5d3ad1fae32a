"""The links of one member of a job, made again when they break."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from grpc_ps.client.links import Links, Shard
from grpc_ps.client.shared.errors import Corrupt, Ending, LostState, PeerLost, PeerUnreachable, PsError, RolledBack
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire

_LOGGER = logging.getLogger(__name__)
# What may be another time: anything else that a shard says is meant.
RETRIED = (PeerUnreachable, PeerLost, Ending, Corrupt)
# Seconds between two attempts to attach.
_PAUSE = 0.2
# Seconds that links must last to count as working, and how many breaks in a row are borne that come sooner.
_SHORT_LIFE = 5.0
# Seconds that an attempt with its pause may take longer than it was given: beyond them this process stood still.
_STOOD_STILL = 2.0
_MAX_BREAKS = 10


class Connection:
    """Attaches to all shards when first used, and again after a break, for `timeout` seconds each time.

    The session's thread uses it. `close` may come from any other thread: it sets one flag, which is never taken back
    and which is looked at after new links are in place, so they cannot be missed; hence there is no lock.

    Args:
        shards: all of them, in order.
        identity: who attaches.
        job: sent along until `worked` is called, for shards that do not know the job; None from whom does not open it.
        timeout: seconds.
        first_timeout: seconds for the first time instead: shards may still be starting.
        recovers: whether a shard that has lost its state goes back to a checkpoint, and all others with it.
        on_attached: told of new links and of what each shard said, before anything is sent on them.
    """

    def __init__(
        self,
        shards: Sequence[Shard],
        identity: job_pb2.Identity,
        job: job_pb2.JobSpec | None,
        timeout: float,
        first_timeout: float,
        recovers: bool = False,
        on_attached: Callable[[Links, list[wire.Attached]], None] = lambda links, attached: None,
    ) -> None:
        self._shards = shards
        self._identity = identity
        self._job = job
        self._timeout = timeout
        self._first_timeout = max(timeout, first_timeout)
        self._recovers = recovers
        self._on_attached = on_attached
        self._links: Links | None = None
        self._boots: list[int] = []
        self._breaks = 0
        self._closed = False

    @property
    def links(self) -> Links | None:
        """The newest links, whole or broken; None before the first use."""
        return self._links

    @property
    def open(self) -> bool:
        """Whether there are links that have not ended."""
        links = self._links
        return links is not None and not links.closed

    def attached(self) -> Links:
        """Returns the links, making them if there have been none. Raises PsError; broken ones are left to `recover`."""
        return self._links or self._attach(self._patience)[0]

    @property
    def _patience(self) -> float:
        return self._timeout if self._boots else self._first_timeout

    def worked(self) -> None:
        """Notes that an answer of all shards has come: they know the job, and breaks in a row begin anew."""
        self._job, self._breaks = None, 0

    def close(self) -> None:
        """Ends the links, now and for good."""
        self._closed = True
        if self._links is not None:
            self._links.close()

    def recover(self, error: PsError, resume: Callable[[Links, list[int]], None]) -> None:
        """Makes all links again after `error`, until `resume` has gone through; returns early when closed.

        `resume` gets the links and the sequence of the push that each shard holds whole. Raises the newest error if it
        must not be tried again or cannot be in time; the links have ended then. There is one attempt at least, and a
        time for which this process stood still does not count, once.
        """
        lived = time.monotonic() - self._links.opened if self._links else 0.0
        self._breaks = 1 if lived > _SHORT_LIFE else self._breaks + 1
        begin, left, stood_still = time.monotonic(), self._patience, False
        event(_LOGGER, "link_broken", why=error)
        while not self._closed:
            if not isinstance(error, RETRIED) or self._breaks > _MAX_BREAKS or left <= 0:
                self._drop()
                raise error
            given, tried = max(left, _PAUSE), time.monotonic()
            try:
                resume(*self._attach(given))
            except PsError as again:
                error = again
                time.sleep(_PAUSE)
                # Looked at behind the pause: it may have stood still in there, too.
                if not stood_still and time.monotonic() - tried > given + _PAUSE + _STOOD_STILL:
                    begin, stood_still = time.monotonic(), True
                left = begin + self._patience - time.monotonic()
            else:
                event(_LOGGER, "link_restored", seconds=time.monotonic() - begin)
                return

    def _attach(self, timeout: float) -> tuple[Links, list[int]]:
        self._drop()
        links = self._links = Links(self._shards)
        if self._closed:  # it came while the links were made, and could not close them
            links.close()
        attached = links.attach(self._identity, self._job, timeout)
        self._check_boots([one.boot for one in attached])
        self._on_attached(links, attached)
        return links, [one.whole_sequence for one in attached]

    def _drop(self) -> None:
        if self._links is not None:
            self._links.close()

    def _check_boots(self, boots: list[int]) -> None:
        for number, (old, new) in enumerate(zip(self._boots, boots, strict=False)):
            if old != new:
                cls = RolledBack if self._recovers else LostState
                raise cls(f"shard {number} ({self._shards[number].address}) restarted and lost its state")
        self._boots = boots
