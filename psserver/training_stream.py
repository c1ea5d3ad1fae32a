"""One worker's training stream on this shard."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.image import Bytes, Layout
from grpc_ps.protos import job_pb2
from grpc_ps.protos.parameter_server_pb2 import Attached, PushPullResponse
from grpc_ps.psserver.aio import EOF, first_message
from grpc_ps.psserver.incoming import Incoming, check_alone, parse
from grpc_ps.psserver.lead.coordinator import Coordinator
from grpc_ps.psserver.peer_limits import Unattached
from grpc_ps.psserver.plan import check_same
from grpc_ps.psserver.replay import Replay
from grpc_ps.psserver.sessions import Outgoing, Session
from grpc_ps.psserver.snapshot import image_messages
from grpc_ps.psserver.turns import Turns
from grpc_ps.psserver.upstream import Upstream

Context = grpc.aio.ServicerContext[bytes, bytes]


class TrainingStream:
    """Reads a worker's pushes into the staging, and writes its answers.

    Two tasks a stream: what comes in never waits for what goes out.

    Args:
        boot: this shard process's life.
        turns: shared by all streams.
        coordinator: on shard 0 the lead, elsewhere None.
    """

    def __init__(
        self,
        context: Context,
        replay: Replay,
        upstream: Upstream,
        boot: int,
        coordinator: Coordinator | None,
        turns: Turns,
    ) -> None:
        self._context = context
        self._replay = replay
        self._upstream = upstream
        self._boot = boot
        self._coordinator = coordinator
        self._turns = turns
        self._session: Session
        self._restored: tuple[Layout, Bytes] | None = None

    async def run(self, unattached: Unattached) -> None:
        """Serves the stream to its end.

        Args:
            unattached: limits how many streams there are that have not attached yet.

        Raises:
            PsError: what the stream is refused for; nothing of an unfinished push stays.
        """
        with unattached.one():
            await self._attach()
        session, replay = self._session, self._replay
        # Before the worker is told: it may ask the lead at once, and the answer must find this stream.
        replay.sessions.attach(session)
        if (asked := replay.residuals.request(session.worker, session.incarnation)) is not None:
            session.send(Outgoing(asked, None))
        tasks: list[asyncio.Task[None]] = []
        try:
            await self._greet()
            tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]
            ends: list[asyncio.Future[Any]] = [*tasks, session.closed]
            await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            for task in tasks:
                if task.done():
                    task.result()
            if session.closed.done() and (error := session.closed.result()) is not None:
                raise error
        finally:
            for task in tasks:
                task.cancel()
            replay.sessions.detach(session)
            replay.staging.detach(session.worker, session.incarnation, session)

    async def _attach(self) -> None:
        data: Any = await first_message(self._context, self._replay.patience)
        if data is EOF:
            raise InvalidPush("the stream ended before `attach`")
        request, chunk = parse(data)
        if not request.HasField("attach"):
            raise InvalidPush("the first message of a training stream is `attach`")
        check_alone("attach", request, chunk)
        attach, replay = request.attach, self._replay
        worker, incarnation = attach.id.worker, attach.id.incarnation
        replay.identity.check_run(attach.id)
        if self._coordinator is not None:
            # The lead's own shard is of the newest generation; another one may not have heard of it yet.
            replay.identity.check(attach.id)
        await self._welcome(attach.id)
        replay.identity.check(attach.id)
        if attach.HasField("job"):
            self._expect(attach.job)
        if replay.plan is None:
            raise InvalidPush("the job is not open, and `attach` names none")
        self._session = Session(worker, incarnation)
        opening = attach.HasField("job") and not replay.opened
        replay.staging.attach(worker, incarnation, replay.plan, self._session, opening=opening)

    async def _welcome(self, identity: job_pb2.Identity) -> None:
        """Waits until the log has admitted that life of a worker: Fenced if it is over, PeerLost if that takes long.

        Lives count anew in each generation, so those of another one say nothing.
        """
        replay, worker, incarnation = self._replay, identity.worker, identity.incarnation

        def admitted() -> bool:
            known = replay.admission.knows(worker, incarnation)
            return known and replay.identity.generation == identity.generation

        await replay.until(admitted, replay.patience, f"admission of worker {worker} by the lead")
        replay.admission.check(worker, incarnation)

    def _expect(self, job: job_pb2.JobSpec) -> None:
        """Takes the job that the opener opens. On shard 0 the lead has given it, and an open one stays as it is."""
        replay = self._replay
        if replay.plan is not None and (replay.opened or self._coordinator is not None):
            check_same(replay.plan.job, job)
        elif replay.plan is None or replay.plan.job != job:
            replay.expect(job)

    async def _greet(self) -> None:
        """Tells the worker that its stream is attached, and what this shard holds of it.

        What it kept back is sent by `_write`: a worker that does not read may make that wait for as long as it likes.
        """
        replay, life = self._replay, (self._session.worker, self._session.incarnation)
        self._restored = restored = replay.residuals.restored(life[0])
        attached = Attached(
            boot=self._boot,
            whole_sequence=replay.staging.held(*life),
            residual_bytes=restored[0].total_bytes if restored else 0,
        )
        await self._context.write(PushPullResponse(attached=attached).SerializeToString())

    async def _read(self) -> None:
        read, closed, traffic = self._context.read, self._session.closed, self._replay.sessions.traffic
        incoming = Incoming(self._session, self._replay, self._upstream, self._coordinator)
        while True:
            data: Any = await read()
            await self._turns.take()
            # A stream that another one has taken over has no say any more.
            if data is EOF or closed.done():
                return
            traffic.received += len(data)
            incoming.take(*parse(data))

    async def _write(self) -> None:
        session, write, times = self._session, self._context.write, self._replay.times
        traffic = self._replay.sessions.traffic
        restored, self._restored = self._restored, None
        for message in image_messages(*restored, self._replay.chunk_bytes) if restored else ():
            await write(message)
            traffic.sent += len(message)
        del restored
        while True:
            outgoing = await session.next()
            for message in times.each("encode", self._messages(outgoing)):
                await write(message)
                traffic.sent += len(message)
            if outgoing.snapshot is not None:
                times.count("releases")
            self._replay.at("answered")

    def _messages(self, outgoing: Outgoing) -> Any:
        head = PushPullResponse(answer=outgoing.answer)
        if outgoing.snapshot is None:
            head.end = True
            return [head.SerializeToString()]
        return outgoing.snapshot.messages(head, PushPullResponse)
