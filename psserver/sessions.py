"""The training streams that are attached to this shard."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from grpc_ps.client.shared.errors import InvalidPush, PsError
from grpc_ps.protos.parameter_server_pb2 import Answer
from grpc_ps.psserver.snapshot import Snapshot


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An answer, with the values to send behind it if it has a release."""

    answer: Answer
    snapshot: Snapshot | None


OUTBOX = 16
"""Answers that may wait for a worker to read them."""


class Session:
    """One attached stream: what is to be sent to a worker.

    A worker is answered once a push and once an `ask`; one that goes on asking and does not read is cut off.

    Attributes:
        closed: done when the stream must end, with the error for the worker.
    """

    def __init__(self, worker: int, incarnation: int) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.outbox: asyncio.Queue[Outgoing] = asyncio.Queue(OUTBOX)
        self.closed: asyncio.Future[PsError | None] = asyncio.get_running_loop().create_future()

    def send(self, outgoing: Outgoing) -> None:
        """Queues an answer."""
        try:
            self.outbox.put_nowait(outgoing)
        except asyncio.QueueFull:
            self.close(InvalidPush(f"worker {self.worker} asks again and again and reads no answer"))

    def close(self, error: PsError | None) -> None:
        """Ends the stream; the first reason counts."""
        if not self.closed.done():
            self.closed.set_result(error)


class Sessions:
    """Attached streams by worker. Not guarded: used by the event loop alone."""

    def __init__(self) -> None:
        self._sessions: dict[int, Session] = {}

    def attach(self, session: Session) -> None:
        """Takes a stream; an older one of the same worker ends."""
        old = self._sessions.get(session.worker)
        if old is not None:
            old.close(None)
        self._sessions[session.worker] = session

    def detach(self, session: Session) -> None:
        """Forgets a stream that has ended."""
        if self._sessions.get(session.worker) is session:
            del self._sessions[session.worker]

    def get(self, worker: int, incarnation: int) -> Session | None:
        """The stream of that life, if it is attached."""
        session = self._sessions.get(worker)
        return session if session is not None and session.incarnation == incarnation else None
