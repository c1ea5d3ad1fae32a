"""Becoming a member of a job, however long the other processes take to start."""

from __future__ import annotations

import os
import secrets
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from grpc_ps.client.answers import Reply
from grpc_ps.client.channel import Reachability
from grpc_ps.client.membership import Membership
from grpc_ps.client.settings import to_message
from grpc_ps.client.shard_client import ShardClient
from grpc_ps.client.shared import codec
from grpc_ps.client.shared.blocks import ParameterSpec, Placement, place
from grpc_ps.client.shared.channel_options import PROTOCOL_VERSION
from grpc_ps.client.shared.errors import Ending, Mismatch, PeerLost, PeerUnreachable
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire

# Seconds between two words to the user.
SAY_EVERY = 5.0
# Seconds for which the lead may hold one call.
HOLD = 1.0


@dataclass(frozen=True, kw_only=True)
class JoinRequest:
    """What a worker brings.

    `stated` is what the user insists on, `defaults` what the worker would choose where nobody states anything; both by
    the names of `job.proto`'s Settings. `index` is the place wanted, None for any; `run` the job it was a member of.
    """

    model: str
    parameters: Sequence[ParameterSpec]
    stated: Mapping[str, Any]
    defaults: Mapping[str, Any]
    index: int | None = None
    run: int = 0
    name: str = field(default_factory=lambda: f"{socket.gethostname()}:{os.getpid()}")

    def message(self, shard_count: int, fingerprint: str) -> wire.JoinRequest:
        """Returns the request, with a nonce of its own so that repeating it is safe."""
        job = job_pb2.JobSpec(model=self.model, plan_fingerprint=fingerprint)
        job.parameters.extend(map(codec.to_proto, self.parameters))
        return wire.JoinRequest(
            protocol=PROTOCOL_VERSION,
            nonce=secrets.randbits(64),
            index=self.index,
            shard_count=shard_count,
            job=job,
            stated=to_message(self.stated),
            defaults=to_message(self.defaults),
            name=self.name,
            wait_ms=int(HOLD * 1000),
            run=self.run,
        )


def join(
    shards: Sequence[ShardClient],
    request: JoinRequest,
    *,
    timeout: float,
    on_wait: Callable[[str], None],
    still: Callable[[], object] = lambda: None,
) -> tuple[Membership, Placement]:
    """Waits until the job takes the worker. `on_wait` is told every five seconds what is missing.

    `still` is called while somebody is waited for, to raise where it knows that nobody will come.

    Any shard may be out of reach for `timeout` seconds; waiting for others that are there has no limit here but the
    lead's own. Raises PeerUnreachable with exactly the addresses that are out of reach, and what the lead refuses with.
    """
    placement = place(request.parameters, len(shards))
    message = request.message(len(shards), placement.fingerprint)
    with Reachability({shard.address: shard.channel for shard in shards}) as reach:
        response = _Wait(shards[0], message, reach, timeout, on_wait, still).run()
    return _membership(response, message.job, placement), placement


class _Wait:
    def __init__(
        self,
        lead: ShardClient,
        message: wire.JoinRequest,
        reach: Reachability,
        timeout: float,
        on_wait: Callable[[str], None],
        still: Callable[[], object],
    ) -> None:
        self._lead = lead
        self._message = message
        self._reach = reach
        self._timeout = timeout
        self._on_wait = on_wait
        self._still = still
        self._said = time.monotonic()

    def run(self) -> wire.JoinResponse:
        waiting_for = ""
        while True:
            self._check(waiting_for)
            if not self._reach.wait(self._lead.address, min(0.5, self._timeout)):
                continue
            try:
                response = self._lead.join(self._message)
            except (PeerUnreachable, PeerLost, Ending):
                time.sleep(0.1)
                continue
            if response.state != wire.JoinResponse.STATE_WAITING:
                return response
            waiting_for = response.waiting_for

    def _check(self, waiting_for: str) -> None:
        missing = self._reach.missing()
        if missing:
            self._still()
        overdue = [address for address, seconds in missing.items() if seconds >= self._timeout]
        # Also before anything is overdue: whom TLS does not trust is not waited for.
        hints = self._reach.hints()
        if overdue:
            why = "".join(f"; {hint}" for hint in hints)
            raise PeerUnreachable(f"cannot reach {', '.join(missing)} (waited {self._timeout:g} s){why}")
        if time.monotonic() - self._said >= SAY_EVERY:
            self._said = time.monotonic()
            self._on_wait(f"{', '.join(missing)} to answer" if missing else waiting_for)


def _membership(response: wire.JoinResponse, asked: job_pb2.JobSpec, placement: Placement) -> Membership:
    ended = response.state == wire.JoinResponse.STATE_DONE
    job = response.job if response.HasField("job") else asked
    if job.plan_fingerprint != placement.fingerprint:
        raise Mismatch("the job places its blocks differently: is this worker of the same version as the shards?")
    end = Reply(done=True, global_step=response.global_step, exit_code=response.exit_code, reason=response.reason)
    return Membership(
        identity=response.id,
        job=job,
        opener=response.state == wire.JoinResponse.STATE_OPENER,
        lease=response.lease_ms / 1000,
        chunk_bytes=response.chunk_bytes,
        global_step=response.global_step,
        recovery=response.recovery_ms / 1000,
        ended=end if ended else None,
    )
