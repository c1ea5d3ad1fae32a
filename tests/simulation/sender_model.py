"""How a worker sends a push: message after message, to all shards that lack it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.messages import Header
from simulation.stream import Stream

if TYPE_CHECKING:
    from simulation.worker_model import Worker


class Sender:
    """Sends one push at a time.

    Attributes:
        busy: messages are left to send.
    """

    def __init__(self, worker: Worker) -> None:
        self.busy = False
        self._worker = worker
        self._attempt = 0

    def stop(self) -> None:
        """The streams are gone: what is left is not sent."""
        self.busy = False
        self._attempt += 1

    def begin(self, header: Header, streams: list[Stream]) -> None:
        """Begins to send, to these shards."""
        self.busy = True
        self._send(header, self._attempt, streams, self._worker.world.scenario.messages)

    def _send(self, header: Header, attempt: int, streams: list[Stream], left: int) -> None:
        worker = self._worker
        if worker.asleep(self._send, header, attempt, streams, left):
            return
        if worker.push is not header or attempt != self._attempt or not worker.streams:
            return
        world = worker.world
        if world.scenario.stops_early and worker.answers.decided:
            self.busy = False
            return
        first = header if left == world.scenario.messages else None
        for stream in streams:
            stream.up.send(stream.shard.take, stream, first, left == 1)
        if left > 1:
            gap = world.draw() * world.scenario.delay
            world.agenda.after(gap, self._send, header, attempt, streams, left - 1)
        else:
            self.busy = False
            worker.collect()
