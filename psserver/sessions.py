"""The training streams that are attached to this shard."""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass

from grpc_ps.client.shared.errors import InvalidPush, PsError
from grpc_ps.protos.parameter_server_pb2 import Answer
from grpc_ps.psserver.snapshot import Outbound
from grpc_ps.psserver.tail import Wanted
from grpc_ps.psserver.traffic import Traffic


@dataclass(frozen=True, slots=True)
class Outgoing:
    """An answer, with the values to send behind it if it has a release."""

    answer: Answer
    snapshot: Outbound | None


OUTBOX = 16
"""Answers that may wait for a worker to read them."""


class Session:
    """One attached stream: what is to be sent to a worker.

    At most one answer with values waits here, so that a worker that does not read holds no more than two snapshots:
    that one, and the one that is being sent. A worker is answered once a push and once an `ask`; one that makes more
    than `OUTBOX` answers pile up is cut off.

    Attributes:
        closed: done when the stream must end, with the error for the worker.
        wanted: rows of tables that the worker named last; of no table before that.
    """

    def __init__(self, worker: int, incarnation: int) -> None:
        self.worker = worker
        self.incarnation = incarnation
        self.wanted = Wanted(0, ())
        self.closed: asyncio.Future[PsError | None] = asyncio.get_running_loop().create_future()
        self._outbox: deque[Outgoing] = deque()
        self._filled = asyncio.Event()

    def wants(self, batch: int) -> bool:
        """Whether it has named the rows for that batch."""
        return bool(self.wanted.ids) and self.wanted.batch == batch

    def send(self, outgoing: Outgoing) -> None:
        """Queues an answer."""
        if outgoing.snapshot is not None:
            self._supersede(outgoing.answer)
        if len(self._outbox) >= OUTBOX:
            self.close(InvalidPush(f"worker {self.worker} asks again and again and reads no answer"))
            return
        self._outbox.append(outgoing)
        self._filled.set()

    def _supersede(self, newer: Answer) -> None:
        """Drops the answer with values that waits: the worker uses the newest position that all shards send.

        The whole answer, not its values alone: a position must not have values on one shard and none on another. Its
        result goes with the newer one; if that has a result too, the worker knows this one, or asks for it again.
        """
        older = next((waiting for waiting in self._outbox if waiting.snapshot is not None), None)
        if older is None:
            return
        self._outbox.remove(older)
        if older.answer.HasField("result") and not newer.HasField("result"):
            newer.result.CopyFrom(older.answer.result)

    async def next(self) -> Outgoing:
        """Waits for an answer and takes it."""
        while not self._outbox:
            self._filled.clear()
            await self._filled.wait()
        return self._outbox.popleft()

    def close(self, error: PsError | None) -> None:
        """Ends the stream; the first reason counts."""
        if not self.closed.done():
            self.closed.set_result(error)


class Sessions:
    """Attached streams by worker. Not guarded: used by the event loop alone.

    Attributes:
        traffic: what went over training streams and to readers.
    """

    def __init__(self) -> None:
        self.traffic = Traffic()
        self._sessions: dict[int, Session] = {}

    def __len__(self) -> int:
        return len(self._sessions)

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

    def close_all(self, error: PsError) -> None:
        """Ends every stream: none is attached any more."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            session.close(error)
