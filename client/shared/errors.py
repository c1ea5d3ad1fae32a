"""Everything that can go wrong between the processes of a job: one class per cause.

The tree, with the exit code of a process that ends for it, and whose fault it is:

    PsError
      UsageError        2  the command line or the caller: a flag, an address, a model's name, a table's capacity
      DataError         3  the data: a file is missing, damaged or of another kind
      Mismatch          2  the newcomer: what it states differs from what the job has
      Unauthenticated   2  the caller: no token, or none that the cluster knows
      Forbidden         2  the caller: its token does not allow the call
      Untrusted         2  the peer or the caller's --tls flags: the certificate cannot be verified, or there is no TLS
      WrongRun          4  the caller is of another job
      RolledBack        4  the lead went back to another generation: join again
      Fenced            4  the caller's lease ended, or its index is held by another: join again
      NotLead           4  the caller asked a shard other than shard 0: the order of the list is wrong
      NotOpen           4  nobody: no worker has opened the job yet
      LostState         4  a shard that restarted: its part of the model is gone
      SnapshotGone      4  the reader was too slow: ask for a new snapshot
      Full              4  the job has no place left: a worker too many, or too many readers at once
      InvalidPush       4  the client: a stream that breaks the protocol's order or lengths
      Corrupt           4  the link or memory: a chunk's sum does not fit its bytes
      Ending            4  nobody: the process is about to end
      PeerUnreachable   4  the network or the peer: no connection could be made
      PeerLost          4  the network or the peer: a connection broke, or an answer did not come in time
      NonFinite         5  the model: NaN or infinity
      CheckpointError   6  the folder of checkpoints: not there, full, damaged, or of another job
      JobFailed         4  the job as a whole ended for the reason given (exit code 5 or others if it says so)

A refusal crosses the wire as a gRPC status with its text as details and its `reason` as trailing metadata
(`REASON_KEY`); `from_rpc_error` makes the same class of it again.
"""

from __future__ import annotations

from typing import Any, ClassVar

import grpc

from grpc_ps.client.shared.handshakes import unlike, unresolved, untrusted

REASON_KEY = "grpc-ps-reason"
EXIT_CODE_KEY = "grpc-ps-exit-code"


class PsError(Exception):
    """Base of all; `str()` is one line for people that names the offending thing."""

    exit_code: int = 4
    status: ClassVar[grpc.StatusCode] = grpc.StatusCode.UNKNOWN
    reason: ClassVar[str] = "ERROR"


class UsageError(PsError):
    """The command line or the caller is wrong."""

    exit_code = 2
    status = grpc.StatusCode.INVALID_ARGUMENT
    reason = "USAGE"


class DataError(PsError):
    """The data is missing, damaged or of another kind."""

    exit_code = 3
    status = grpc.StatusCode.INVALID_ARGUMENT
    reason = "DATA"


class Mismatch(PsError):
    """What a newcomer states differs from what the job has; the text has both values."""

    exit_code = 2
    status = grpc.StatusCode.FAILED_PRECONDITION
    reason = "MISMATCH"


class Unauthenticated(PsError):
    """The caller shows no token, or none that the cluster knows."""

    exit_code = 2
    status = grpc.StatusCode.UNAUTHENTICATED
    reason = "UNAUTHENTICATED"


class Forbidden(PsError):
    """The caller's token does not allow the call."""

    exit_code = 2
    status = grpc.StatusCode.PERMISSION_DENIED
    reason = "PERMISSION_DENIED"


class Untrusted(PsError):
    """The peer's certificate cannot be verified, or it speaks no TLS. Trying again changes nothing."""

    exit_code = 2
    status = grpc.StatusCode.UNAVAILABLE
    reason = "UNTRUSTED"


class WrongRun(PsError):
    """The caller belongs to another job."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    reason = "WRONG_RUN"


class RolledBack(PsError):
    """The lead is in another generation than the caller: join again."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    reason = "ROLLED_BACK"


class Fenced(PsError):
    """The caller is no member any more, or its index is held by a live worker."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    reason = "FENCED"


class NotLead(PsError):
    """Only shard 0 answers this call."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    reason = "NOT_LEAD"


class NotOpen(PsError):
    """The job has no values yet."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    reason = "NOT_OPEN"


class LostState(PsError):
    """A shard restarted under an open job, so its part of the model is gone."""

    status = grpc.StatusCode.FAILED_PRECONDITION
    reason = "LOST_STATE"


class SnapshotGone(PsError):
    """The shard has let go of that snapshot."""

    status = grpc.StatusCode.NOT_FOUND
    reason = "SNAPSHOT_GONE"


class Full(PsError):
    """No place is left for another worker or reader."""

    status = grpc.StatusCode.RESOURCE_EXHAUSTED
    reason = "FULL"


class InvalidPush(PsError):
    """A stream broke the protocol."""

    status = grpc.StatusCode.INVALID_ARGUMENT
    reason = "INVALID_PUSH"


class Corrupt(PsError):
    """A chunk's sum does not fit its bytes."""

    status = grpc.StatusCode.DATA_LOSS
    reason = "CORRUPT"


class Ending(PsError):
    """The process is about to end."""

    status = grpc.StatusCode.UNAVAILABLE
    reason = "ENDING"


class PeerUnreachable(PsError):
    """No connection could be made."""

    status = grpc.StatusCode.UNAVAILABLE
    reason = "UNREACHABLE"


class PeerLost(PsError):
    """A connection broke, or an answer did not come in time."""

    status = grpc.StatusCode.UNAVAILABLE
    reason = "LOST"


class NonFinite(PsError):
    """The numbers are not finite."""

    exit_code = 5
    status = grpc.StatusCode.ABORTED
    reason = "NON_FINITE"


class CheckpointError(PsError):
    """A checkpoint cannot be written or read, or is of another job."""

    exit_code = 6
    status = grpc.StatusCode.FAILED_PRECONDITION
    reason = "CHECKPOINT"


class JobFailed(PsError):
    """The whole job ended, for the reason in the text."""

    status = grpc.StatusCode.ABORTED
    reason = "JOB_FAILED"

    def __init__(self, message: str, *, exit_code: int = 4) -> None:
        super().__init__(message)
        self.exit_code = exit_code


def error_classes() -> dict[str, type[PsError]]:
    """Returns the classes of the tree by their wire names."""
    return {cls.reason: cls for cls in PsError.__subclasses__()}


def trailing_metadata(error: PsError) -> tuple[tuple[str, str], ...]:
    """Returns what a server sends after the status so that the caller gets the same class."""
    return ((REASON_KEY, error.reason), (EXIT_CODE_KEY, str(error.exit_code)))


def from_rpc_error(error: grpc.RpcError, address: str) -> PsError:
    """Turns a failed call to `address` (host:port) into the class that the server raised, or into what gRPC means.

    Statuses without a reason come from gRPC itself: a link that cannot be made or breaks is `PeerUnreachable` or
    `PeerLost`, `Untrusted` if TLS says so; a server of another kind is `Mismatch`; a fault inside the server is
    `JobFailed`.
    """
    code, details = _status(error)
    metadata = _metadata(error)
    cls = error_classes().get(metadata.get(REASON_KEY, ""))
    if cls is None:
        return _from_status(code, address, details)
    if cls is JobFailed:
        return JobFailed(details, exit_code=int(metadata.get(EXIT_CODE_KEY, "4")))
    return cls(details)


def _status(error: Any) -> tuple[grpc.StatusCode, str]:
    # What grpc and grpc.aio raise has these methods; the base class, which servers see, has none.
    if not hasattr(error, "code"):
        return grpc.StatusCode.UNKNOWN, str(error)
    return error.code() or grpc.StatusCode.UNKNOWN, error.details() or ""


def _metadata(error: Any) -> dict[str, str]:
    pairs = error.trailing_metadata() if hasattr(error, "trailing_metadata") else None
    return {key: value for key, value in pairs or () if isinstance(value, str)}


def _from_status(code: grpc.StatusCode, address: str, details: str) -> PsError:
    text = f"{address}: {details or code.name}"
    if code is grpc.StatusCode.UNAVAILABLE and (why := untrusted(details)) is not None:
        return Untrusted(f"{address}: {why}")
    # What a server that is none of gRPC's says may come under any status.
    if (why := unlike(details)) is not None:
        return PeerUnreachable(f"{address}: {why}")
    if code is grpc.StatusCode.UNAVAILABLE:
        return PeerUnreachable(_unreachable(address, details) or text)
    if code is grpc.StatusCode.UNKNOWN and "Stream removed" in text:
        # What gRPC calls a connection that broke while a message was on its way, now and then.
        return PeerLost(text)
    if code is grpc.StatusCode.DEADLINE_EXCEEDED:
        return PeerLost(f"{address}: no answer in time (is its process stopped, or a link cut?)")
    if code in (grpc.StatusCode.CANCELLED, grpc.StatusCode.INTERNAL):
        return PeerLost(text)
    if code is grpc.StatusCode.UNAUTHENTICATED:
        return Unauthenticated(text)
    if code is grpc.StatusCode.PERMISSION_DENIED:
        return Forbidden(text)
    if code is grpc.StatusCode.UNIMPLEMENTED:
        return Mismatch(f"{address}: speaks gRPC, and is no psserver of this version: mend the list in --ps")
    return JobFailed(f"{text} ({code.name})")


def _unreachable(address: str, details: str) -> str:
    if unresolved(details):
        return f"{address}: the name of its host cannot be resolved; is it spelled right?"
    if details.startswith("failed to connect"):
        return f"{address}: nothing answers there (is the job over, or the address wrong?)"
    return ""
