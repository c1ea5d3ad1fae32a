"""The service ParameterServer: what workers and readers call."""

from __future__ import annotations

import secrets
from collections.abc import AsyncIterator
from typing import Any

import grpc.aio
from google.protobuf.message import DecodeError

from grpc_ps.client.shared.channel_options import PROTOCOL_VERSION
from grpc_ps.client.shared.errors import Mismatch, NotLead, PeerLost, SnapshotGone, UsageError
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.psserver.lead.coordinator import Coordinator
from grpc_ps.psserver.messages import join_request
from grpc_ps.psserver.peer_limits import Unattached
from grpc_ps.psserver.reader_pins import Pinned
from grpc_ps.psserver.replay import Replay
from grpc_ps.psserver.snapshot import Outbound
from grpc_ps.psserver.table_reading import TableImage, table_image
from grpc_ps.psserver.training_stream import TrainingStream
from grpc_ps.psserver.turns import Turns
from grpc_ps.psserver.upstream import Upstream

MAX_WAIT = 5.0


def lead_of(coordinator: Coordinator | None) -> Coordinator:
    """The coordinator, or NotLead where there is none."""
    if coordinator is None:
        raise NotLead("only shard 0 answers this call: is --ps in the order of the shards?")
    return coordinator


def check_protocol(theirs: int) -> None:
    """Refuses another version of the contract."""
    if theirs != PROTOCOL_VERSION:
        raise Mismatch(f"protocol: this shard speaks {PROTOCOL_VERSION}, the caller {theirs}")


class WorkerService:
    """Decodes, delegates, encodes. `PushPull` and `Pull` have their messages as bytes."""

    def __init__(self, replay: Replay, upstream: Upstream, boot: int, coordinator: Coordinator | None) -> None:
        self._replay = replay
        self._upstream = upstream
        self._boot = boot
        self._coordinator = coordinator
        self._unattached = Unattached()
        self._turns = Turns()

    async def Join(self, request: wire.JoinRequest, context: Any) -> wire.JoinResponse:
        """See `parameter_server.proto`."""
        lead = lead_of(self._coordinator)
        check_protocol(request.protocol)
        reply = await lead.reception.join(join_request(request), min(request.wait_ms / 1000, MAX_WAIT))
        response = wire.JoinResponse(
            state=f"STATE_{reply.state}",
            waiting_for=reply.waiting_for,
            global_step=lead.job.step,
            lease_ms=int(lead.job.limits.lease * 1000),
            chunk_bytes=lead.chunk_bytes,
            recovery_ms=int(lead.job.limits.recovery * 1000) if lead.job.saving is not None else 0,
        )
        if reply.member is not None and (job := lead.present_spec) is not None:
            response.id.CopyFrom(self._identity(reply.member.worker, reply.member.incarnation))
            response.job.CopyFrom(job)
        if lead.job.done is not None:
            response.exit_code, response.reason = lead.job.done.exit_code, lead.job.done.reason
        return response

    def _identity(self, worker: int, incarnation: int) -> job_pb2.Identity:
        run, generation = self._replay.identity.run, self._replay.identity.generation
        return job_pb2.Identity(run=run, generation=generation, worker=worker, incarnation=incarnation)

    async def Heartbeat(self, request: wire.HeartbeatRequest, context: Any) -> wire.HeartbeatResponse:
        """See `parameter_server.proto`."""
        lead = lead_of(self._coordinator)
        self._replay.identity.check(request.id)
        loss = request.loss if request.HasField("loss") else None
        times = {field.name: value for field, value in request.times.ListFields()}
        member = lead.beat(request.id.worker, request.id.incarnation, request.local_step, loss, times)
        done = lead.job.done
        return wire.HeartbeatResponse(
            global_step=lead.job.step,
            done=done is not None,
            exit_code=done.exit_code if done else 0,
            reason=done.reason if done else "",
            evaluator=lead.job.evaluation.holder == member.incarnation,
        )

    async def Leave(self, request: wire.LeaveRequest, context: Any) -> wire.LeaveResponse:
        """See `parameter_server.proto`."""
        lead = lead_of(self._coordinator)
        self._replay.identity.check(request.id)
        lead.leave(request.id.worker, request.id.incarnation)
        return wire.LeaveResponse()

    async def Report(self, request: wire.ReportRequest, context: Any) -> wire.ReportResponse:
        """See `parameter_server.proto`."""
        lead = lead_of(self._coordinator)
        self._replay.identity.check(request.id)
        lead.report(request.id.worker, request.id.incarnation, request.global_step, request.metrics)
        return wire.ReportResponse()

    async def PushPull(self, requests: Any, context: grpc.aio.ServicerContext[bytes, bytes]) -> None:
        """See `parameter_server.proto`."""
        stream = TrainingStream(context, self._replay, self._upstream, self._boot, self._coordinator, self._turns)
        await stream.run(self._unattached)

    async def Pull(self, data: bytes, context: Any) -> AsyncIterator[bytes]:
        """See `parameter_server.proto`."""
        try:
            request = wire.PullRequest.FromString(data)
        except DecodeError as error:
            raise UsageError(f"not a PullRequest: {error}") from error
        name = request.snapshot or secrets.randbits(63) | 1
        if not request.snapshot:
            lead = lead_of(self._coordinator)
            await self._values()
            lead.pin(name, averages=request.averages, listed=request.shard_count)
        try:
            pinned = await self._pinned(name)
            image = self._asked(request, pinned)
            head = wire.PullResponse(meta=self._meta(name, image))
            for message in image.messages(head, wire.PullResponse):
                yield message
                self._replay.sessions.traffic.sent += len(message)
        finally:
            if not request.keep:
                self._replay.pins.drop(name)

    def _asked(self, request: wire.PullRequest, pinned: Pinned) -> Outbound:
        plan = self._replay.plan
        if not request.table or plan is None:
            return pinned.snapshot
        return table_image(request, pinned, plan.tables, self._replay.chunk_bytes)

    async def _values(self) -> None:
        """Waits until an open job's values are here: a reader that is told to come again has pinned nothing."""
        replay = self._replay
        try:
            await replay.until(lambda: replay.has_values or not replay.opened, replay.patience, "the values")
        except PeerLost:
            raise SnapshotGone("this shard still takes in the job's values: ask again") from None

    async def _pinned(self, name: int) -> Pinned:
        pins = self._replay.pins
        try:
            await self._replay.until(lambda: pins.get(name) is not None, self._replay.patience, "the snapshot")
        except PeerLost:
            pass
        pinned = pins.get(name)
        if pinned is None:
            raise SnapshotGone("this shard has let go of the snapshot: ask for a new one")
        return pinned

    def _meta(self, name: int, snapshot: Outbound) -> wire.SnapshotMeta:
        meta = wire.SnapshotMeta(
            snapshot=name,
            run=self._replay.identity.run,
            generation=self._replay.identity.generation,
            total_bytes=snapshot.total_bytes,
            global_step=snapshot.step,
        )
        if isinstance(snapshot, TableImage):
            meta.rows = snapshot.count
        if self._coordinator is not None and (job := self._coordinator.present_spec) is not None:
            meta.keep_ms = int(self._coordinator.job.limits.pin * 1000)
            meta.job.CopyFrom(job)
        return meta
