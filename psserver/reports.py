"""What a follower may say on its link: the lead's decisions trust it after this."""

from __future__ import annotations

import re
from collections.abc import Container

from grpc_ps.client.shared.checkpoint_format import part_name
from grpc_ps.client.shared.errors import InvalidPush, UsageError
from grpc_ps.protos import coordination_pb2 as wire
from grpc_ps.psserver.lead.job import Job

MAX_ADDRESS = 1000
MAX_ERROR = 10_000
"""Characters."""
_SHA256 = re.compile(r"[0-9a-f]{64}")
MAX_UNACKNOWLEDGED = 1 << 16
"""Entries that the lead keeps for a follower that takes them and acknowledges nothing."""


def check_hello(hello: wire.Hello) -> None:
    """Refuses what no shard says of itself."""
    if len(hello.address) > MAX_ADDRESS:
        raise UsageError(f"`hello`: an address has at most {MAX_ADDRESS} characters, not {len(hello.address)}")


def check_report(request: wire.FollowRequest, shard: int, job: Job) -> None:
    """Refuses a report that no shard of this job can make.

    Raises:
        InvalidPush: it speaks of a parameter, a step or an entry that there is not, or says `hello` again.
    """
    if request.HasField("hello"):
        raise InvalidPush("`hello` comes first on a link, and once")
    parameters = job.definition.parameters if job.definition is not None else {}
    whole, overflow = request.whole, request.overflow
    if whole.non_finite and whole.non_finite not in parameters:
        raise InvalidPush(f"`whole`: the job has no parameter {whole.non_finite!r}")
    if request.HasField("overflow"):
        if overflow.parameter not in parameters:
            raise InvalidPush(f"`overflow`: the job has no parameter {overflow.parameter!r}")
        if not 0 < overflow.global_step <= job.step:
            raise InvalidPush(f"`overflow`: there is no update to step {overflow.global_step}")
    if request.HasField("saved"):
        _check_saved(request.saved, shard, job, parameters)
    unable = request.unable
    if request.HasField("unable") and not (unable.exit_code == UsageError.exit_code and len(unable.reason) < MAX_ERROR):
        raise InvalidPush(f"`unable`: has exit code {unable.exit_code} and a reason of {len(unable.reason)} characters")
    if any(table.name not in parameters for table in request.tables) or len(request.tables) > len(parameters):
        raise InvalidPush("`tables`: has a table that the job does not have")
    if request.acknowledged > job.log.position:
        raise InvalidPush(f"entry {request.acknowledged} is acknowledged, the log has {job.log.position}")


def _check_saved(saved: wire.Saved, shard: int, job: Job, parameters: Container[str]) -> None:
    """Refuses what no shard can have written."""
    if job.saving is None:
        raise InvalidPush("`saved`: this job has no checkpoints")
    if saved.non_finite and saved.non_finite not in parameters:
        raise InvalidPush(f"`saved`: the job has no parameter {saved.non_finite!r}")
    if len(saved.error) > MAX_ERROR:
        raise InvalidPush(f"`saved`: an error has at most {MAX_ERROR} characters, not {len(saved.error)}")
    file = part_name(shard, job.shards.count)
    written = not (saved.error or saved.non_finite)
    if written and (saved.file != file or not _SHA256.fullmatch(saved.sha256)):
        raise InvalidPush(f"`saved`: the part of shard {shard} is {file} with its sha256, not {saved.file!r}")


def check_acknowledges(job: Job, shard: int, sent: int) -> None:
    """Refuses a follower for which too much of the log is kept; `sent` is the last entry on its link.

    Raises:
        InvalidPush
    """
    acknowledged = next((it.position for it in job.shards if it.shard == shard), sent)
    if sent - acknowledged > MAX_UNACKNOWLEDGED:
        raise InvalidPush(f"shard {shard} has acknowledged nothing since entry {acknowledged}: the log has {sent}")
