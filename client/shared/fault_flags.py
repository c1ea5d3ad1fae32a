"""The flags of fault injection: --fault and --fault-seed, for the processes that meet the faults and for launching."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Any

import click

from grpc_ps.client.shared.faults import (
    FORMS,
    SHARD_POINTS,
    WORKER_POINTS,
    Fault,
    FaultPlan,
    parse_fault,
)
from grpc_ps.client.shared.flags import Decorated, Flag, Whole, refusal

if TYPE_CHECKING:
    _FaultType = click.ParamType[Fault]
    _SentType = click.ParamType[tuple[str, str]]
else:  # older versions of click have no parameters here
    _FaultType = _SentType = click.ParamType

_TOPIC = "Fault injection, to rehearse failures"
_WHO = re.compile(r"\s*(?P<kind>ps|workers?)(?:\s+(?P<number>\d{1,9}))?\s*:(?P<fault>.*)", re.DOTALL)


def served_calls() -> dict[str, bool]:
    """Returns the rpcs that a shard serves, from the contract itself, each with whether it streams."""
    from grpc_ps.protos import control_pb2, coordination_pb2, parameter_server_pb2

    files: tuple[Any, ...] = (parameter_server_pb2, coordination_pb2, control_pb2)
    services = [service for file in files for service in file.DESCRIPTOR.services_by_name.values()]
    methods = [method for service in services for method in service.methods]
    return {method.name: method.client_streaming or method.server_streaming for method in methods}


def made_calls() -> dict[str, bool]:
    """Returns the rpcs that a worker makes, each with whether it streams."""
    from grpc_ps.protos import parameter_server_pb2

    theirs = parameter_server_pb2.DESCRIPTOR.services_by_name["ParameterServer"].methods_by_name
    return {name: streams for name, streams in served_calls().items() if name in theirs or name == "Status"}


class FaultType(_FaultType):
    """One fault; the error names the flag, what is wrong with it, and what would do."""

    name = "fault"

    def __init__(self, calls: Callable[[], Mapping[str, bool]], points: Collection[str]) -> None:
        self._calls = calls
        self._points = points

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Shows what a fault is in --help."""
        return "SPEC"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Fault:
        """Returns the fault, or raises click.UsageError."""
        try:
            return parse_fault(str(value), self._calls(), self._points)
        except ValueError as error:
            raise refusal(param, ctx, value, str(error)) from None


class SentFault(_SentType):
    """A fault with the processes that it is for: `worker 1: SPEC`. Converts to (who, fault as text)."""

    name = "fault"

    def get_metavar(self, param: click.Parameter, ctx: click.Context) -> str:
        """Shows both in --help."""
        return "'WHO: SPEC'"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> tuple[str, str]:
        """Returns whom the fault is for, as "ps 0" or "ps", and the fault; or raises click.UsageError."""
        found = _WHO.fullmatch(str(value))
        if found is None:
            rule = "must be 'WHO: SPEC', where WHO is ps, ps 0, workers or worker 1"
            raise refusal(param, ctx, value, rule)
        kind = found["kind"].rstrip("s") if found["kind"] != "ps" else "ps"
        of_shards = kind == "ps"
        calls, points = (served_calls(), SHARD_POINTS) if of_shards else (made_calls(), WORKER_POINTS)
        try:
            fault = parse_fault(found["fault"], calls, points)
        except ValueError as error:
            raise refusal(param, ctx, value, str(error)) from None
        return (kind if found["number"] is None else f"{kind} {int(found['number'])}"), str(fault)


def _seed_option() -> Callable[[Decorated], Decorated]:
    seed_help = "The same seed and the same calls meet the same faults."
    return click.option(
        "--fault-seed", cls=Flag, topic=_TOPIC, type=Whole(), default=0, show_default=True, help=seed_help
    )


def fault_options(calls: Callable[[], Mapping[str, bool]], points: Collection[str]) -> Callable[[Decorated], Decorated]:
    """Adds --fault and --fault-seed to the command of a process that has those calls and points."""
    text = (
        f"A failure made on purpose; repeatable. {FORMS}. CALL is an rpc: PushPull, Heartbeat, Join. P is a"
        f" probability, at each message where the rpc is a stream. POINT is {', '.join(points)}."
    )
    option = click.option("--fault", cls=Flag, topic=_TOPIC, type=FaultType(calls, points), multiple=True, help=text)
    return lambda command: option(_seed_option()(command))


def sent_fault_options() -> Callable[[Decorated], Decorated]:
    """Adds --fault and --fault-seed to a command that starts processes."""
    text = (
        "A failure made on purpose, repeatable: `ps 1: kill@applied:50`, `workers: delay:PushPull=0.01@0.5`. WHO is ps,"
        " ps N, workers or worker N; `psserver --help` and `worker --help` have the forms of SPEC."
    )
    option = click.option("--fault", cls=Flag, topic=_TOPIC, type=SentFault(), multiple=True, help=text)
    return lambda command: option(_seed_option()(command))


def fault_plan(flags: Mapping[str, Any]) -> FaultPlan:
    """Makes the plan of the values of --fault and --fault-seed."""
    return FaultPlan(faults=tuple(flags["fault"]), seed=flags["fault_seed"])


def faults_for(name: str, sent: Collection[tuple[str, str]], seed: int) -> list[str]:
    """Returns the flags for the process of that name ("ps 1"); none if no fault is for it.

    A fault for "ps" is for all shards, one for "worker" for all workers.
    """
    mine = [fault for who, fault in sent if who in (name, name.partition(" ")[0])]
    flags = [word for fault in mine for word in ("--fault", fault)]
    return [*flags, "--fault-seed", str(seed)] if flags else []
