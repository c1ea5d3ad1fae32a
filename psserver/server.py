"""Assembles one shard's gRPC server, and runs it from its start to the end of the job."""

from __future__ import annotations

import asyncio
import logging
import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import grpc
import grpc.aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from grpc_ps.client.shared.channel_options import PROTOCOL_VERSION, SERVER_OPTIONS, Options
from grpc_ps.client.shared.errors import JobFailed, PsError, UsageError
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import control_pb2, coordination_pb2, parameter_server_pb2
from grpc_ps.protos.control_pb2_grpc import add_ControlServicer_to_server
from grpc_ps.protos.coordination_pb2_grpc import add_CoordinationServicer_to_server
from grpc_ps.psserver.config import MIB, ShardConfig
from grpc_ps.psserver.control_service import ControlService
from grpc_ps.psserver.coordination_service import CoordinationService
from grpc_ps.psserver.interceptors import ErrorInterceptor
from grpc_ps.psserver.lead.coordinator import Coordinator, error_of
from grpc_ps.psserver.lead.job import Job
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.link import Link
from grpc_ps.psserver.replay import Replay
from grpc_ps.psserver.updates import load_store
from grpc_ps.psserver.upstream import Local, Upstream
from grpc_ps.psserver.worker_service import WorkerService

STOP_GRACE = 0.5
"""Seconds for streams to end by themselves when the server stops."""

logger = logging.getLogger(__name__)


class ShardServer:
    """One shard, on the running event loop.

    `start` opens the port, `run` serves until the job is over, `interrupt` asks for an early end.

    Attributes:
        address: where it is reached, once started.
    """

    def __init__(self, config: ShardConfig) -> None:
        self.config = config
        self.address = ""
        self._boot = secrets.randbits(63) | 1
        self._interrupted = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        self._kernels = ThreadPoolExecutor(1, thread_name_prefix="kernels")
        self._store_class: Future[type[Any]] = Future()
        self._replay = Replay(
            shard=config.shard,
            shard_count=config.shards,
            chunk_bytes=config.chunk_bytes,
            kernels=self._kernels,
            store_class=self._store_class,
            on_overflow=lambda parameter, step: self._upstream.overflow(parameter, step),
            on_reduced=lambda report: self._upstream.reduced(report),
            on_read=lambda snapshot: self._upstream.unpinned(snapshot),
            on_failure=self._fail,
        )
        self._coordinator = self._lead() if config.shard == 0 else None
        self._coordination = CoordinationService(self._coordinator, self._replay, self._boot)
        self._link: Link | None = None
        self._upstream: Upstream
        self._server = grpc.aio.server(interceptors=(ErrorInterceptor(),), options=server_options(config.chunk_bytes))

    def _lead(self) -> Coordinator:
        self._replay.run, self._replay.generation = secrets.randbits(63) | 1, secrets.randbits(63) | 1
        try:
            job = Job(
                run=self._replay.run,
                shard_count=self.config.shards,
                presets=self.config.presets,
                limits=self.config.limits,
            )
        except Refusal as refusal:
            raise UsageError(error_of(refusal)) from refusal
        return Coordinator(job, self._replay, self.config.chunk_bytes, self._fail)

    def _loaded(self, loading: Future[type[Any]]) -> None:
        if (error := loading.exception()) is not None:
            self._loop.call_soon_threadsafe(self._fail, error)
        else:
            self._store_class.set_result(loading.result())

    def _fail(self, error: BaseException) -> None:
        if not self._failure.done():
            self._failure.set_exception(error)

    async def start(self) -> None:
        """Opens the port and serves.

        Raises:
            UsageError: the port cannot be had.
        """
        self._bind()
        # TensorFlow is imported while workers start, which import it too.
        self._kernels.submit(load_store, self.config.threads).add_done_callback(self._loaded)
        if self._coordinator is not None:
            self._upstream = Local(self._coordinator)
        else:
            self._upstream = self._link = self._follow()
        self._add_services()
        await self._server.start()
        event(logger, "serving", shard=self.config.shard, shards=self.config.shards, address=self.address)

    def _bind(self) -> None:
        host = f"[{self.config.host}]" if ":" in self.config.host else self.config.host
        try:
            port = self._server.add_insecure_port(f"{host}:{self.config.port}")
        except RuntimeError as error:
            where = f"port {self.config.port} on {self.config.host}"
            raise UsageError(f"{where} cannot be had: it is in use, or this process may not have it") from error
        self.address = f"{host}:{port}"

    def _follow(self) -> Link:
        hello = coordination_pb2.Hello(
            protocol=PROTOCOL_VERSION,
            shard=self.config.shard,
            shard_count=self.config.shards,
            boot=self._boot,
            address=self.address,
            chunk_bytes=self.config.chunk_bytes,
        )
        return Link(
            lead=self.config.lead,
            hello=hello,
            replay=self._replay,
            connect_seconds=self.config.connect_seconds,
            link_seconds=self.config.limits.link,
        )

    def _add_services(self) -> None:
        server = self._server
        workers = WorkerService(self._replay, self._upstream, self._boot, self._coordinator)
        add_raw_parameter_server(workers, server)
        add_CoordinationServicer_to_server(self._coordination, server)
        add_ControlServicer_to_server(ControlService(self._coordinator, self._replay, self.address), server)
        health_service = health.aio.HealthServicer()  # type: ignore[attr-defined]  # its stubs lack aio
        health_pb2_grpc.add_HealthServicer_to_server(health_service, server)
        names = [
            file.services_by_name[name].full_name
            for file in (parameter_server_pb2.DESCRIPTOR, coordination_pb2.DESCRIPTOR, control_pb2.DESCRIPTOR)
            for name in file.services_by_name
        ]
        health_name = health_pb2.DESCRIPTOR.services_by_name["Health"].full_name
        reflection.enable_server_reflection((*names, health_name, reflection.SERVICE_NAME), server)

    def interrupt(self) -> None:
        """Asks for an early end: workers and followers are told, within the grace time."""
        self._interrupted.set()

    async def run(self) -> None:
        """Serves until the job is over or `interrupt` was called.

        Raises:
            JobFailed: the job ended with an exit code other than 0.
            PsError: the lead is lost.
        """
        work = asyncio.create_task(self._run_lead(self._coordinator) if self._coordinator else self._run_follower())
        interrupted = asyncio.create_task(self._interrupted.wait())
        try:
            await asyncio.wait((work, interrupted, self._failure), return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                await self._fall(work)
            if not work.done():
                await self._end_early(work, "was told to end by a signal")
            elif (shutdown := work.result()).exit_code:
                raise JobFailed(shutdown.reason, exit_code=shutdown.exit_code)
        finally:
            work.cancel()
            interrupted.cancel()
            await self.close()

    async def _fall(self, work: asyncio.Task[coordination_pb2.Shutdown]) -> None:
        """Ends with what made this shard useless; what is not an error of ours is named in one line, and logged."""
        error = self._failure.exception()
        why = str(error) if isinstance(error, PsError) else f"{type(error).__name__}: {error}"
        logger.error("failed", exc_info=error)
        await self._end_early(work, f"failed: {why}")
        raise JobFailed(f"shard {self.config.shard} ({self.address}) failed: {why}") from error

    async def _run_lead(self, coordinator: Coordinator) -> coordination_pb2.Shutdown:
        await coordinator.run()
        done = coordinator.job.done or Done()
        shutdown = coordination_pb2.Shutdown(exit_code=done.exit_code, reason=done.reason)
        await self._coordination.dismiss_followers(shutdown, self.config.grace_seconds)
        return shutdown

    async def _run_follower(self) -> coordination_pb2.Shutdown:
        if self._link is None:
            raise LookupError("a follower without a link")
        return await self._link.run()

    async def _end_early(self, work: asyncio.Task[coordination_pb2.Shutdown], why: str) -> None:
        if self._coordinator is not None:
            self._coordinator.stop(Done(4, f"shard 0 ({self.address}) {why}"))
            await asyncio.wait((work,), timeout=self.config.grace_seconds)

    async def close(self) -> None:
        """Closes the port and every stream."""
        await self._server.stop(grace=STOP_GRACE)
        self._kernels.shutdown(wait=False, cancel_futures=True)
        event(logger, "ended", shard=self.config.shard)


def server_options(chunk_bytes: int) -> Options:
    """Options of a shard's server: a message is a chunk, or a job's description, and little more."""
    return (*SERVER_OPTIONS, ("grpc.max_receive_message_length", max(chunk_bytes, MIB) + 64 * 1024))


def add_raw_parameter_server(service: WorkerService, server: grpc.aio.Server) -> None:
    """Registers the service; the messages of `PushPull` and `Pull` stay bytes, for protobuf would copy their chunks."""
    wire = parameter_server_pb2

    def unary(name: str) -> grpc.RpcMethodHandler[Any, Any]:
        return grpc.unary_unary_rpc_method_handler(
            getattr(service, name),
            request_deserializer=getattr(wire, f"{name}Request").FromString,
            response_serializer=getattr(wire, f"{name}Response").SerializeToString,
        )

    handlers = {name: unary(name) for name in ("Join", "Heartbeat", "Leave", "Report")}
    handlers["PushPull"] = grpc.stream_stream_rpc_method_handler(service.PushPull)
    handlers["Pull"] = grpc.unary_stream_rpc_method_handler(service.Pull)
    name = wire.DESCRIPTOR.services_by_name["ParameterServer"].full_name
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(name, handlers),))
