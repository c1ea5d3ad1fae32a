"""Assembles one shard's gRPC server, and runs it from its start to the end of the job."""

from __future__ import annotations

import asyncio
import logging
import secrets
from concurrent.futures import Future, ThreadPoolExecutor
from functools import partial
from typing import Any

import grpc
import grpc.aio
from google.protobuf.descriptor import ServiceDescriptor
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from grpc_ps.client.shared.channel_options import PROTOCOL_VERSION, SERVER_OPTIONS, Options
from grpc_ps.client.shared.checkpoint_lock import read_mark
from grpc_ps.client.shared.errors import JobFailed, PsError, UsageError
from grpc_ps.client.shared.faults import Faults
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import control_pb2, coordination_pb2, parameter_server_pb2
from grpc_ps.psserver.access import AccessInterceptor
from grpc_ps.psserver.binding import bind
from grpc_ps.psserver.checkpoint import CheckpointFiles
from grpc_ps.psserver.config import MIB, ShardConfig
from grpc_ps.psserver.control_service import ControlService
from grpc_ps.psserver.coordination_service import CoordinationService
from grpc_ps.psserver.fault_interceptor import FaultInterceptor
from grpc_ps.psserver.interceptors import ErrorInterceptor
from grpc_ps.psserver.lead.coordinator import Coordinator
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.leading import make_lead
from grpc_ps.psserver.link import Link
from grpc_ps.psserver.metrics import ShardCollector
from grpc_ps.psserver.metrics_server import MetricsServer
from grpc_ps.psserver.peer_limits import Allowances, LimitInterceptor
from grpc_ps.psserver.raw_services import add_service
from grpc_ps.psserver.replay import Replay
from grpc_ps.psserver.updates import load_store
from grpc_ps.psserver.upstream import ShardReports, Upstream
from grpc_ps.psserver.worker_service import WorkerService

SAVING_SHARE = 0.8
"""Of the grace time, for a checkpoint and the workers to leave; what is left is for those who were not told."""
STOP_GRACE = 1.0
"""Seconds for streams to end by themselves when the server stops."""

logger = logging.getLogger(__name__)


class ShardServer:
    """One shard, on the running event loop.

    `start` opens the port, `run` serves until the job is over, `interrupt` asks for an early end.

    Attributes:
        address: where it is reached, once started.
        metrics_url: where Prometheus finds its figures; empty for nowhere.
    """

    def __init__(self, config: ShardConfig) -> None:
        self.config = config
        self.address = ""
        self.metrics_url = ""
        self._metrics: MetricsServer | None = None
        self._boot = secrets.randbits(63) | 1
        self._interrupted = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self._failure: asyncio.Future[None] = self._loop.create_future()
        self._kernels = ThreadPoolExecutor(1, thread_name_prefix="kernels")
        self._savers = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._store_class: Future[type[Any]] = Future()
        self._faults = Faults(config.faults, f"ps {config.shard}")
        self._replay = Replay(
            shard=config.shard,
            shard_count=config.shards,
            chunk_bytes=config.chunk_bytes,
            patience=config.limits.call,
            kernels=self._kernels,
            savers=self._savers,
            files=self._files(),
            store_class=self._store_class,
            on_overflow=lambda parameter, step: self._upstream.overflow(parameter, step),
            on_reduced=lambda report: self._upstream.reduced(report),
            on_saved=lambda report: self._upstream.saved(report),
            on_read=lambda snapshot: self._upstream.unpinned(snapshot),
            on_failure=self._fail,
            at=self._faults.at,
        )
        self._coordinator: Coordinator | None = None
        self._coordination: CoordinationService
        self._link: Link | None = None
        self._upstream: Upstream
        # Innermost, so that a refusal that it repeats or loses is still an error of ours.
        faults = (FaultInterceptor(self._faults),) if self._faults else ()
        guards = (LimitInterceptor(Allowances()), AccessInterceptor(config.security.tokens))
        interceptors = (ErrorInterceptor(config.limits.call), *guards, *faults)
        self._server = grpc.aio.server(interceptors=interceptors, options=server_options(config.chunk_bytes))

    def _files(self) -> CheckpointFiles | None:
        config = self.config
        if config.checkpoints is None:
            return None
        return CheckpointFiles(config.checkpoints.directory, config.shard, config.shards, self._faults.at)

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
            UsageError: a port cannot be had.
            CheckpointError: the folder of checkpoints cannot be used.
        """
        self._bind()
        # TensorFlow is imported while workers start, which import it too.
        self._kernels.submit(load_store, self.config.threads).add_done_callback(self._loaded)
        if self.config.shard == 0:
            self._coordinator = await make_lead(self.config, self._replay, self._faults.at, self._fail)
            self._upstream = ShardReports(self._coordinator, 0)
        else:
            self._upstream = self._link = self._follow()
        self._coordination = CoordinationService(self._coordinator, self._replay, self._boot)
        self._add_services()
        self._serve_metrics()
        await self._server.start()
        if self._coordinator is not None:
            self._coordinator.begin()
        event(logger, "serving", shard=self.config.shard, shards=self.config.shards, address=self.address)

    def _bind(self) -> None:
        add = partial(self.config.security.add_port, self._server)
        self.address = bind(self.config.host, self.config.port, add)

    def _serve_metrics(self) -> None:
        config = self.config
        if config.metrics_port is None:
            return
        collector = ShardCollector(self._loop, config.shard, config.shards, self._replay, self._coordinator)
        self._metrics = MetricsServer(config.metrics_host, config.metrics_port, collector)
        self.metrics_url = self._metrics.url

    def _follow(self) -> Link:
        checkpoints = self.config.checkpoints
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
            security=self.config.link_security,
            hello=hello,
            replay=self._replay,
            connect_seconds=self.config.connect_seconds,
            link_seconds=self.config.limits.recovery if checkpoints else self.config.limits.link,
            mark=(lambda: read_mark(checkpoints.directory) or "none") if checkpoints else lambda: "",
        )

    def _add_services(self) -> None:
        server = self._server
        workers = WorkerService(self._replay, self._upstream, self._boot, self._coordinator)
        control = ControlService(self._coordinator, self._replay, self.address)
        add_service(server, _service(parameter_server_pb2, "ParameterServer"), workers, raw=("PushPull", "Pull"))
        add_service(server, _service(coordination_pb2, "Coordination"), self._coordination)
        add_service(server, _service(control_pb2, "Control"), control)
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
                await self._end_early(work, "was told to end by a signal", save=True)
            elif (shutdown := work.result()).exit_code:
                raise JobFailed(shutdown.reason, exit_code=shutdown.exit_code)
        finally:
            work.cancel()
            interrupted.cancel()
            await self.close()

    async def _fall(self, work: asyncio.Task[coordination_pb2.Shutdown]) -> None:
        """Ends with what made this shard useless; what is not an error of ours is named in one line, and logged."""
        error = self._failure.exception()
        foreseen = isinstance(error, PsError)
        why = str(error) if foreseen else f"{type(error).__name__}: {error}"
        code = error.exit_code if isinstance(error, PsError) else 4
        logger.error("failed", exc_info=None if foreseen else error)
        await self._end_early(work, f"failed: {why}", save=False, exit_code=code)
        raise JobFailed(f"shard {self.config.shard} ({self.address}) failed: {why}", exit_code=code) from error

    async def _run_lead(self, coordinator: Coordinator) -> coordination_pb2.Shutdown:
        await coordinator.run()
        done = coordinator.outcome
        shutdown = coordination_pb2.Shutdown(exit_code=done.exit_code, reason=done.reason)
        await self._coordination.dismiss_followers(shutdown, self.config.grace_seconds)
        return shutdown

    async def _run_follower(self) -> coordination_pb2.Shutdown:
        if self._link is None:
            raise LookupError("a follower without a link")
        return await self._link.run()

    async def _end_early(
        self, work: asyncio.Task[coordination_pb2.Shutdown], why: str, *, save: bool, exit_code: int = 4
    ) -> None:
        """Ends the job, or this shard's part in it, within the grace time."""
        grace = self.config.grace_seconds
        if save:
            self._replay.residuals.hurry(self.config.limits.last_residuals)
        if self._coordinator is not None:
            done = Done(exit_code, f"shard 0 ({self.address}) {why}")
            self._coordinator.stop(done, save=save)
            await asyncio.wait((work,), timeout=grace * SAVING_SHARE)
            if not work.done():
                self._coordinator.stop(done, save=False)
                await asyncio.wait((work,), timeout=grace * (1 - SAVING_SHARE))
        elif self._link is not None and self._link.connected:
            if exit_code == UsageError.exit_code:
                # It would come to the same after a restart.
                self._link.unable(exit_code, f"shard {self.config.shard} ({self.address}) {why}")
            else:
                self._link.leaving()
            await asyncio.wait((work,), timeout=grace)

    async def close(self) -> None:
        """Closes the ports and every stream."""
        if self._metrics is not None:
            await self._loop.run_in_executor(None, self._metrics.close)
        await self._server.stop(grace=STOP_GRACE)
        self._kernels.shutdown(wait=False, cancel_futures=True)
        self._savers.shutdown(wait=False, cancel_futures=True)
        if self._coordinator is not None:
            await self._coordinator.close(STOP_GRACE)
        event(logger, "ended", shard=self.config.shard)


def server_options(chunk_bytes: int) -> Options:
    """Options of a shard's server: a message is a chunk, or a job's description, and little more."""
    return (*SERVER_OPTIONS, ("grpc.max_receive_message_length", max(chunk_bytes, MIB) + 64 * 1024))


def _service(module: Any, name: str) -> ServiceDescriptor:
    descriptor: ServiceDescriptor = module.DESCRIPTOR.services_by_name[name]
    return descriptor
