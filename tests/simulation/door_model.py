"""How workers' streams come to a shard and leave it.

Mirrored: a stream waits until the log has admitted its life, and on a follower until its generation has come; a newer
stream of a worker ends the older one; an ended one frees what it was in the middle of.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.messages import PLAN
from simulation.stream import Stream

if TYPE_CHECKING:
    from simulation.shard_model import Shard

ADMISSION = 10.0


class Door:
    """The streams of one shard process.

    Attributes:
        sessions: those that are attached, by worker.
    """

    def __init__(self, shard: Shard) -> None:
        self.sessions: dict[int, Stream] = {}
        self._shard = shard
        self._visitors: list[Stream] = []

    def attach(self, stream: Stream) -> None:
        """A worker opens a stream; it waits here until the log has admitted it."""
        shard = self._shard
        if not stream.served:
            return
        if shard.life.cut:
            stream.refuse("LOST")
            return
        if shard.number == 0 and (stream.generation != shard.generation or shard.era.cut):
            stream.refuse("ROLLED_BACK")
            return
        worker, admitted = stream.worker.worker, shard.admitted.get(stream.worker.worker, 0)
        if stream.generation != shard.generation or admitted < stream.incarnation:
            self._visitors.append(stream)
            shard.world.agenda.after(ADMISSION, self._wait_over, stream)
            return
        if admitted > stream.incarnation:
            stream.refuse("FENCED")
            return
        opening = stream.worker.opener and not shard.opened
        shard.staging.attach(worker, stream.incarnation, PLAN, stream, opening=opening)  # type: ignore[arg-type]
        old = self.sessions.get(worker)
        self.sessions[worker] = stream
        if old is not None:
            shard.world.seen["streams overlap"] += 1
            self.end(old)
            old.refuse("LEFT")
        stream.attached = True
        held = shard.staging.held(worker, stream.incarnation)
        stream.down.send(stream.worker.attached, stream, shard.boot, held)

    def admit(self, worker: int) -> None:
        """The log has admitted a life: its streams need not wait any more."""
        for stream in [it for it in self._visitors if it.worker.worker == worker]:
            self._visitors.remove(stream)
            self.attach(stream)

    def _wait_over(self, stream: Stream) -> None:
        if stream in self._visitors:
            self._visitors.remove(stream)
            stream.refuse("LOST")

    def stream_ended(self, stream: Stream) -> None:
        """The connection is gone, or the worker closed it."""
        if not stream.served:
            return
        stream.served = False
        stream.up.cut = True
        if stream.attached:
            self.end(stream)
        elif stream in self._visitors:
            self._visitors.remove(stream)

    def end(self, stream: Stream) -> None:
        """An attached stream is gone."""
        if self.sessions.get(stream.worker.worker) is stream:
            del self.sessions[stream.worker.worker]
        self._shard.staging.detach(stream.worker.worker, stream.incarnation, stream)

    def refuse(self, stream: Stream, reason: str) -> None:
        """Ends a stream with an error's name."""
        self.end(stream)
        stream.refuse(reason)

    def close(self) -> None:
        """The generation is over: its streams end, those of others go on waiting."""
        generation = self._shard.generation
        for stream in [*self.sessions.values(), *self._visitors]:
            if stream.generation == generation:
                self.refuse(stream, "ROLLED_BACK")
        self._visitors = [stream for stream in self._visitors if stream.served]
