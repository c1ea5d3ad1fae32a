"""Who may call what: looked at before anything of a call is read."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from types import MappingProxyType
from typing import Any, NoReturn

import grpc
import grpc.aio

from grpc_ps.client.shared.errors import Forbidden, PsError, Unauthenticated
from grpc_ps.client.shared.tokens import Role, Tokens

_WORKERS = "/grpc_ps.v1.ParameterServer/"
_CONTROL = "/grpc_ps.v1.Control/"

LEAST_ROLES: Mapping[str, Role] = MappingProxyType(
    {
        f"{_WORKERS}Join": Role.WORKER,
        f"{_WORKERS}Heartbeat": Role.WORKER,
        f"{_WORKERS}Leave": Role.WORKER,
        f"{_WORKERS}Report": Role.WORKER,
        f"{_WORKERS}PushPull": Role.WORKER,
        f"{_WORKERS}Pull": Role.READER,
        f"{_CONTROL}Status": Role.READER,
        f"{_CONTROL}Set": Role.ADMIN,
        f"{_CONTROL}StopJob": Role.ADMIN,
        f"{_CONTROL}Checkpoint": Role.ADMIN,
        f"{_CONTROL}SubmitJob": Role.ADMIN,
        f"{_CONTROL}ListJobs": Role.READER,
        f"{_CONTROL}CancelJob": Role.ADMIN,
        f"{_CONTROL}AwaitJob": Role.WORKER,
        "/grpc_ps.v1.Coordination/Follow": Role.ADMIN,
        "/grpc.health.v1.Health/List": Role.READER,
        "/grpc.health.v1.Health/Watch": Role.READER,
        "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo": Role.READER,
    }
)
"""The least role for each call; for any other one it is admin."""

OPEN = frozenset({"/grpc.health.v1.Health/Check"})
"""Calls that need no token: what asks whether a process serves, such as a container's probe, has none."""


class AccessInterceptor(grpc.aio.ServerInterceptor):  # type: ignore[type-arg]  # not generic at run time
    """Refuses calls without a token that allows them. The refusal names the call and the roles, nothing of the job.

    It stands in front of all that reads a request; `ErrorInterceptor`, around it, sends what it raises.
    """

    def __init__(self, tokens: Tokens | None) -> None:
        self._tokens = tokens

    async def intercept_service(
        self, continuation: Callable[[Any], Awaitable[Any]], details: grpc.HandlerCallDetails
    ) -> Any:
        """Returns the call's own handler, or one that refuses."""
        call: Any = details
        method = call.method.decode() if isinstance(call.method, bytes) else call.method
        if self._tokens is not None and (refusal := refused(self._tokens, method, call.invocation_metadata)):
            return _refusing(refusal)
        return await continuation(details)


def refused(tokens: Tokens, method: str, metadata: Any) -> PsError | None:
    """Returns why a call is refused; None for one that is allowed."""
    if method in OPEN:
        return None
    role = tokens.role(presented) if (presented := _presented(metadata)) is not None else None
    if role is None:
        shown = "knows no such token as the caller shows" if presented is not None else "takes no call without a token"
        return Unauthenticated(f"the cluster {shown} (--token-file)")
    least = LEAST_ROLES.get(method, Role.ADMIN)
    if role < least:
        name = method.rpartition("/")[2]
        return Forbidden(f"{name} is for the role {least.name.lower()}; the caller's token has {role.name.lower()}")
    return None


def _presented(metadata: Any) -> str | None:
    """The token of a call. Of several headers none counts: a proxy in between might look at another one than we."""
    values = [value for key, value in metadata or () if key.lower() == "authorization"]
    if len(values) != 1:
        return None
    text = values[0].decode("latin-1") if isinstance(values[0], bytes) else values[0]
    scheme, _, token = text.partition(" ")
    return token if scheme.lower() == "bearer" and token else None


def _refusing(refusal: PsError) -> Any:
    """A handler that reads nothing; on the wire any kind of call may end so."""

    async def refuse(_requests: Any, _context: Any) -> NoReturn:
        raise refusal

    return grpc.stream_stream_rpc_method_handler(refuse)
