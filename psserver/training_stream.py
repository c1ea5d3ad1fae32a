"""One worker's training stream on this shard."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc.aio

from grpc_ps.client.shared.codec import ChunkView, detach_chunk
from grpc_ps.client.shared.errors import Fenced, InvalidPush, Mismatch
from grpc_ps.protos import job_pb2
from grpc_ps.protos.parameter_server_pb2 import Attach, Attached, PushHeader, PushPullRequest, PushPullResponse
from grpc_ps.psserver.aio import EOF, first_message
from grpc_ps.psserver.lead.coordinator import Coordinator
from grpc_ps.psserver.plan import Plan
from grpc_ps.psserver.replay import Replay
from grpc_ps.psserver.sessions import Outgoing, Session
from grpc_ps.psserver.staging import Part
from grpc_ps.psserver.upstream import Upstream

Context = grpc.aio.ServicerContext[bytes, bytes]

ADMISSION_SECONDS = 10.0
"""For `attach` to come, and for the log to admit its sender."""


class TrainingStream:
    """Reads a worker's pushes into the staging, and writes its answers.

    Two tasks a stream: what comes in never waits for what goes out.

    Args:
        boot: this shard process's life.
        coordinator: on shard 0 the lead, elsewhere None.
    """

    def __init__(
        self, context: Context, replay: Replay, upstream: Upstream, boot: int, coordinator: Coordinator | None
    ) -> None:
        self._context = context
        self._replay = replay
        self._upstream = upstream
        self._boot = boot
        self._coordinator = coordinator
        self._session: Session
        self._plan: Plan
        self._part: Part | None = None
        self._skipping = False

    async def run(self) -> None:
        """Serves the stream to its end.

        Raises:
            PsError: what the stream is refused for; nothing of an unfinished push stays.
        """
        await self._attach()
        session, replay = self._session, self._replay
        # Before the worker is told: it may ask the lead at once, and the answer must find this stream.
        replay.sessions.attach(session)
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
            replay.staging.abandon(session.worker, session.incarnation)

    async def _attach(self) -> None:
        data: Any = await first_message(self._context)
        if data is EOF:
            raise InvalidPush("the stream ended before `attach`")
        request = _parse(data)[0]
        if not request.HasField("attach"):
            raise InvalidPush("the first message of a training stream is `attach`")
        attach = request.attach
        worker, incarnation = attach.id.worker, attach.id.incarnation
        await self._replay.welcome(worker, incarnation, ADMISSION_SECONDS)
        self._replay.check(attach.id)
        self._plan = self._plan_for(attach)
        self._session = Session(worker, incarnation)

    async def _greet(self) -> None:
        """Tells the worker that its stream is attached, and what this shard holds of it."""
        whole = self._replay.staging.held(self._session.worker, self._session.incarnation)
        attached = PushPullResponse(attached=Attached(boot=self._boot, whole_sequence=whole))
        await self._context.write(attached.SerializeToString())

    def _plan_for(self, attach: Attach) -> Plan:
        replay = self._replay
        if attach.HasField("job") and not replay.opened:
            if self._coordinator is not None and attach.job != self._coordinator.spec:
                raise Mismatch("`attach` names another job than the lead gave")
            replay.expect(attach.job)
        if replay.plan is None:
            raise InvalidPush("the job is not open, and `attach` names none")
        return replay.plan

    async def _read(self) -> None:
        read = self._context.read
        while True:
            data: Any = await read()
            if data is EOF:
                return
            self._take(*_parse(data))

    def _take(self, request: PushPullRequest, chunk: ChunkView | None) -> None:
        if request.HasField("ask"):
            self._ask(request.ask.id, request.ask.sequence)
            return
        if request.HasField("header"):
            self._begin(request.header)
        if chunk is not None and not self._skipping:
            self._unfinished().write(chunk)
        if request.end:
            self._end()

    def _ask(self, identity: job_pb2.Identity, sequence: int) -> None:
        self._check_mine(identity)
        if self._coordinator is None:
            raise InvalidPush("`ask` goes to shard 0")
        self._coordinator.ask(identity.worker, identity.incarnation, sequence)

    def _check_mine(self, identity: job_pb2.Identity) -> None:
        self._replay.check(identity)
        if (identity.worker, identity.incarnation) != (self._session.worker, self._session.incarnation):
            raise Fenced("the message is of another worker than its stream")

    def _begin(self, header: PushHeader) -> None:
        self._check_mine(header.id)
        self._replay.check_admitted(header.id.worker, header.id.incarnation)
        if self._part is not None:
            raise InvalidPush(f"{self._part}: not ended before the next push")
        if header.kind not in (PushHeader.KIND_GRADIENTS, PushHeader.KIND_VALUES):
            raise InvalidPush(f"push {header.sequence}: unknown kind {header.kind}")
        values = header.kind == PushHeader.KIND_VALUES
        if not values and not header.examples:
            raise InvalidPush(f"push {header.sequence}: no examples")
        self._part = self._replay.staging.begin(header, self._plan.values if values else self._plan.gradients)
        self._skipping = self._part is None

    def _unfinished(self) -> Part:
        if self._part is None:
            raise InvalidPush("a chunk or an end without a header")
        return self._part

    def _end(self) -> None:
        if self._skipping:
            self._skipping = False
            return
        part = self._unfinished()
        self._part = None
        self._upstream.whole(part.finish())

    async def _write(self) -> None:
        outbox, write = self._session.outbox, self._context.write
        while True:
            for message in self._messages(await outbox.get()):
                await write(message)

    def _messages(self, outgoing: Outgoing) -> Any:
        head = PushPullResponse(answer=outgoing.answer)
        if outgoing.snapshot is None:
            head.end = True
            return [head.SerializeToString()]
        return outgoing.snapshot.messages(head, PushPullResponse)


def _parse(data: bytes) -> tuple[PushPullRequest, ChunkView | None]:
    try:
        return detach_chunk(PushPullRequest, data)
    except ValueError as error:
        raise InvalidPush(str(error)) from error
