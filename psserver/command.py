"""The flags of `psserver`, and its life as a process."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import signal
import sys
from collections.abc import Mapping
from typing import Any

import click

from grpc_ps.client.shared.addresses import parse_addresses
from grpc_ps.client.shared.checkpoint_flags import checkpoint_options, checkpoint_settings
from grpc_ps.client.shared.config_file import config_option
from grpc_ps.client.shared.fault_flags import fault_options, fault_plan, served_calls
from grpc_ps.client.shared.faults import SHARD_POINTS
from grpc_ps.client.shared.flags import Command, Whole, connect_timeout_option
from grpc_ps.client.shared.job_flags import check_job_flags, job_options, stated_flags
from grpc_ps.client.shared.limit_flags import limit_options
from grpc_ps.client.shared.logs import event, setup_logging
from grpc_ps.client.shared.security_flags import security_options, server_security_from_flags
from grpc_ps.client.shared.tf_config import shard_flags, tf_config_option
from grpc_ps.psserver.config import RESIDUALS_SHARE, ShardConfig
from grpc_ps.psserver.lead.limits import Limits
from grpc_ps.psserver.server import ShardServer

logger = logging.getLogger(__name__)

_LOOPBACK = "127.0.0.1"


@click.command(cls=Command)
@config_option("psserver")
@click.option("--shard", type=Whole(0, 9999), help="Number of this shard, from 0. Shard 0 is the lead.")
@click.option("--port", type=Whole(0, 65535), help="Port to listen on; 0 picks one. Default: the one in --ps.")
@click.option(
    "--host",
    metavar="ADDRESS",
    help="Address to listen on. Default: 127.0.0.1; where TF_CONFIG has this shard on another machine's address, all.",
)
@click.option("--ps", metavar="HOST:PORT,...", help="All shards in order. Or give --shards and --lead.")
@click.option("--shards", type=Whole(1, 10000), help="How many shards the job has. Default: as --ps, or 1.")
@click.option("--lead", metavar="HOST:PORT", help="Address of shard 0. Default: the first of --ps.")
@tf_config_option()
@limit_options()
@connect_timeout_option("the lead")
@click.option(
    "--kernel-threads", type=Whole(1, 1024), default=1, show_default=True, help="Threads of one update kernel."
)
@click.option(
    "--chunk-bytes",
    type=Whole(64, 1 << 21),
    default=1 << 20,
    show_default=True,
    help="Largest chunk, a multiple of 64.",
)
@checkpoint_options()
@click.option(
    "--keep-alive",
    is_flag=True,
    help="Stand: take one job of `psctl submit` after the other, and stay when a job is done, for workers that state a"
    " later end.",
)
@job_options()
@click.option(
    "--metrics-port",
    type=Whole(0, 65535),
    help="Port of the figures for Prometheus; 0 picks one. Default: none. Prints `METRICS shard=N url=URL`.",
)
@click.option(
    "--metrics-host",
    metavar="ADDRESS",
    help="Address for --metrics-port. Default: 127.0.0.1. Whoever reaches it may read them: neither TLS nor token.",
)
@security_options(server=True)
@fault_options(served_calls, SHARD_POINTS)
def psserver(**flags: Any) -> int:
    """Holds one shard of a model's parameters and applies the updates that workers push.

    Prints `READY shard=N address=HOST:PORT` when it serves, and exits by itself when the job is over. The settings of
    the job that are given to shard 0 are fixed for all; the worker that opens the job chooses the others.
    """
    config = config_from_flags(flags)
    setup_logging(f"psserver {config.shard}")
    # Not `asyncio.run`: the process ends right after this, and cancelling gRPC's tasks before prints tracebacks.
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    return loop.run_until_complete(serve(config))


def config_from_flags(flags: Mapping[str, Any]) -> ShardConfig:
    """Makes the configuration; click.UsageError names the flag that is wrong."""
    flags = shard_flags(flags)
    flags = {**flags, "host": _LOOPBACK if flags["host"] is None else flags["host"]}
    addresses = parse_addresses(flags["ps"], "--ps") if flags["ps"] is not None else ()
    leads = parse_addresses(flags["lead"], "--lead") if flags["lead"] is not None else addresses[:1]
    if len(leads) > 1:
        raise click.UsageError(f"--lead {flags['lead']}: must be one address, that of shard 0")
    lead = next(iter(leads), "")
    shards = flags["shards"] or len(addresses) or 1
    shard, port = flags["shard"], flags["port"]
    if addresses and shards != len(addresses):
        raise click.UsageError(f"--shards {shards}: --ps lists {len(addresses)}")
    if shard >= shards:
        more = "" if addresses or flags["shards"] else "; for more shards give --shards and --lead, or --ps"
        raise click.UsageError(f"--shard {shard}: must be 0 to {shards - 1}, with {shards} shard(s){more}")
    if shard and not lead:
        raise click.UsageError(f"--shard {shard}: needs --ps, or --lead with the address of shard 0")
    if port is None and not addresses:
        raise click.UsageError("--port: must be given where --ps is not (0 picks a free one)")
    port = int(addresses[shard].rpartition(":")[2]) if port is None else port
    _check_metrics(flags, port)
    if flags["chunk_bytes"] % 64:
        raise click.UsageError(f"--chunk-bytes {flags['chunk_bytes']}: must be a multiple of 64")
    if shard == 0:
        check_job_flags(flags)
    security, link_security = server_security_from_flags(flags)
    link_security.metadata(lead)  # refuses a token that would be sent in the clear
    checkpoints = checkpoint_settings(flags)
    return ShardConfig(
        shard=shard,
        shards=shards,
        host=flags["host"],
        port=port,
        known_as=addresses[shard] if addresses else "",
        lead="" if shard == 0 else lead,
        presets=stated_flags(flags) if shard == 0 else {},
        limits=Limits(
            lease=flags["lease"],
            link=flags["link_timeout"],
            start=flags["start_timeout"],
            rejoin=flags["rejoin_timeout"],
            pin=flags["snapshot_timeout"],
            call=flags["call_timeout"],
            recovery=checkpoints.recovery if checkpoints else Limits().recovery,
            save=checkpoints.timeout if checkpoints else Limits().save,
            last_residuals=min(flags["grace"] * RESIDUALS_SHARE, Limits().residuals),
        ),
        connect_seconds=flags["connect_timeout"],
        grace_seconds=flags["grace"],
        threads=flags["kernel_threads"],
        chunk_bytes=flags["chunk_bytes"],
        checkpoints=checkpoints,
        keep_alive=flags["keep_alive"],
        faults=fault_plan(flags),
        security=security,
        link_security=link_security,
        metrics_host=flags["metrics_host"] or _LOOPBACK,
        metrics_port=flags["metrics_port"],
    )


def _check_metrics(flags: Mapping[str, Any], port: int) -> None:
    """Refuses an address for the figures that cannot be, beside the shard's own port. Raises click.UsageError."""
    if flags["metrics_host"] is not None and flags["metrics_port"] is None:
        raise click.UsageError(f"--metrics-host {flags['metrics_host']}: needs --metrics-port")
    if port and port == flags["metrics_port"] and not _apart(flags["host"], flags["metrics_host"] or _LOOPBACK):
        raise click.UsageError(f"--metrics-port {port} and --port {port}: the figures need a port of their own")


def _apart(host: str, other: str) -> bool:
    """Whether both addresses may have one port: neither is a name, or all addresses of the machine."""
    try:
        one, two = ipaddress.ip_address(host), ipaddress.ip_address(other)
    except ValueError:
        return False
    return one != two and not (one.is_unspecified or two.is_unspecified)


def _unheard(loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
    """Tells of errors that nobody waits for, but not that a call was cancelled: gRPC's are when the shard ends."""
    if not isinstance(context.get("exception"), asyncio.CancelledError):
        loop.default_exception_handler(context)


async def serve(config: ShardConfig) -> int:
    """Runs the shard; returns the exit code, 128 + number after a signal."""
    # Whatever the user's environment says: hiding a GPU later would still let the driver start on it.
    os.environ["CUDA_VISIBLE_DEVICES"] = "-1"
    if config.is_out_of_reach:
        do = "--host ADDRESS or 0.0.0.0, unless something passes connections on"
        event(logger, "out_of_reach", logging.WARNING, host=config.host, others_know_it_as=config.known_as, do=do)
    server = ShardServer(config)
    received: list[int] = []

    def on_signal(number: int) -> None:
        if received:
            os._exit(128 + number)
        received.append(number)
        event(logger, "signal", signal=signal.Signals(number).name, grace=config.grace_seconds)
        server.interrupt()

    loop = asyncio.get_running_loop()
    loop.set_exception_handler(_unheard)
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal, number)
    await server.start()
    if server.metrics_url:
        sys.stdout.write(f"METRICS shard={config.shard} url={server.metrics_url}\n")
    sys.stdout.write(f"READY shard={config.shard} address={server.address}\n")
    sys.stdout.flush()
    await server.run()
    return 128 + received[0] if received else 0
