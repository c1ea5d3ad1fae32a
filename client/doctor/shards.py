"""Whether the addresses of --ps are the shards of one job, in their order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

from grpc_ps.client.doctor.check import PEER, USAGE, Check, all_within, fail, ok, warn
from grpc_ps.client.doctor.network import check_reached, resolve, split
from grpc_ps.client.shard_client import ShardClient
from grpc_ps.client.shared.channel_options import PROTOCOL_VERSION
from grpc_ps.client.shared.errors import (
    Forbidden,
    Mismatch,
    NotLead,
    PsError,
    Unauthenticated,
    from_rpc_error,
)
from grpc_ps.client.shared.security import Security
from grpc_ps.protos import control_pb2
from grpc_ps.protos import parameter_server_pb2 as wire

_ANY = ("0.0.0.0", "::")


@dataclass(frozen=True, kw_only=True)
class Peer:
    """What was found at one address of --ps; `status` is there if it is a lead that tells its state."""

    checks: list[Check]
    is_lead: bool = False
    status: control_pb2.StatusResponse | None = field(default=None, repr=False)


def check_shards(addresses: Sequence[str], security: Security, seconds: float) -> list[Check]:
    """Looks at all addresses at the same time, then at what the lead says of the others."""
    asked = [partial(_ask, number, address, security, seconds) for number, address in enumerate(addresses)]
    try:
        peers = all_within(6 * seconds, asked)
    except TimeoutError:
        return [fail("ps", f"{', '.join(addresses)}: not all looked at within {6 * seconds:g} s", PEER)]
    checks = [check for peer in peers for check in peer.checks]
    for number, peer in enumerate(peers):
        if number and peer.is_lead:
            checks.append(fail(f"ps {number}", f"{addresses[number]} is the lead shard: it comes first in --ps", USAGE))
    if peers[0].status is not None:
        checks += check_list(addresses, peers[0].status, seconds)
    return checks


def _ask(number: int, address: str, security: Security, seconds: float) -> Peer:
    name = f"ps {number}"
    reached = check_reached(name, address, seconds)
    if reached.state == "fail":
        return Peer(checks=[reached])
    shard = ShardClient(address, security)
    try:
        return _talk(name, shard, reached, seconds, lead=number == 0)
    finally:
        shard.close()


def _talk(name: str, shard: ShardClient, reached: Check, seconds: float, *, lead: bool) -> Peer:
    if (silent := check_health(name, shard, seconds)) is not None:
        return Peer(checks=[reached, silent])
    try:
        status = shard.status(seconds)
    except NotLead:
        role = fail(name, f"{shard.address} is not the lead shard: shard 0 comes first in --ps", USAGE)
        return Peer(checks=[reached, role if lead else ok(name, f"{shard.address}: a shard, not the lead")])
    except (Unauthenticated, Forbidden) as error:
        text = f"{shard.address}: a shard, which does not tell more: {error}"
        return Peer(checks=[reached, fail(name, f"{text}; give --token-file", USAGE)])
    except PsError as error:
        return Peer(checks=[reached, fail(name, str(error), error.exit_code)])
    phase = control_pb2.StatusResponse.Phase.Name(status.phase).removeprefix("PHASE_").lower()
    text = f"{shard.address}: the lead shard; job {phase}, global step {status.global_step}"
    return Peer(checks=[reached, ok(name, text), *_check_protocol(name, shard, seconds)], is_lead=True, status=status)


def check_health(name: str, shard: ShardClient, seconds: float) -> Check | None:
    """Whether gRPC is spoken there. The call for that needs no token. None if all is well."""
    stub = health_pb2_grpc.HealthStub(shard.channel)
    try:
        answer = stub.Check(health_pb2.HealthCheckRequest(), timeout=seconds)
    except grpc.RpcError as error:
        failure = from_rpc_error(error, shard.address)
        # Whatever it is, it is no other setting of this job, which a mismatch would be.
        return fail(name, str(failure), PEER if isinstance(failure, Mismatch) else failure.exit_code)
    if answer.status != health_pb2.HealthCheckResponse.SERVING:
        return fail(name, f"{shard.address}: says that it does not serve: is it ending?", PEER)
    return None


def _check_protocol(name: str, shard: ShardClient, seconds: float) -> list[Check]:
    """Which version of the contract the lead speaks: every one refuses version 0 before it looks at anything else."""
    try:
        shard.join(wire.JoinRequest(protocol=0))
    except Mismatch as error:
        theirs = re.search(r"speaks (\d+)", str(error))
        if theirs and int(theirs[1]) != PROTOCOL_VERSION:
            text = f"{shard.address} speaks protocol {theirs[1]}, this psctl {PROTOCOL_VERSION}: install one version"
            return [fail(name, text, USAGE)]
        return [ok(name, f"protocol {PROTOCOL_VERSION}")] if theirs else []
    except PsError:
        # A token for readers may not join.
        return []
    return []


def check_list(addresses: Sequence[str], status: control_pb2.StatusResponse, seconds: float) -> list[Check]:
    """Compares --ps with the shards that the lead knows: how many, in which order, and whether they are there."""
    known = {shard.shard: shard for shard in status.shards}
    listed = f"--ps lists {len(addresses)} shard{'s' * (len(addresses) > 1)}"
    if max(known, default=0) >= len(addresses):
        more = f"{listed}, the lead knows {max(known) + 1}: {', '.join(known[n].address for n in sorted(known))}"
        return [fail("shards", more, USAGE)]
    wrong = [
        fail(
            f"ps {number}",
            f"{address}: the lead knows shard {number} as {known[number].address}: is --ps in the order of the shards?",
            USAGE,
        )
        for number, address in enumerate(addresses)
        if number in known and not _same(address, known[number].address, seconds)
    ]
    if wrong:
        return wrong
    away = [str(n) for n in range(len(addresses)) if n not in known or not known[n].connected]
    if away:
        text = f"{listed}; the lead has no link with shard {', '.join(away)}: is that one of the same job (--lead)?"
        return [warn("shards", text)]
    return [ok("shards", f"all {len(addresses)} are linked with the lead")]


def _same(listed: str, known: str, seconds: float) -> bool:
    """Whether two addresses may be of one shard; of a host that stands for all of a machine's only the port counts."""
    (host, port), (known_host, known_port) = split(listed), split(known)
    if port != known_port:
        return False
    if known_host in _ANY or host == known_host:
        return True
    try:
        return bool({*resolve(listed, seconds)} & {*resolve(known, seconds)}) or _one_is_loopback(host, known_host)
    except OSError:
        # The lead may know it by a name that only means something where it runs.
        return True


def _one_is_loopback(*hosts: str) -> bool:
    return any(host == "localhost" or host.startswith("127.") or host == "::1" for host in hosts)
