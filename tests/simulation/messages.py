"""What travels in the simulator in place of protobuf messages: the same names, none of the encoding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from grpc_ps.client.shared.image import Layout
from grpc_ps.client.shared.wire_form import WireForm
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.psserver.lead.log import Answer, Done, PushId
from grpc_ps.psserver.lead.parts import Push
from grpc_ps.psserver.tail import ShardTables

GRADIENTS: int = wire.PushHeader.KIND_GRADIENTS
VALUES: int = wire.PushHeader.KIND_VALUES
IMAGE_BYTES = 64
"""Of every push on every shard, so that staged memory counts parts."""

OUTCOMES: Mapping[str, int] = MappingProxyType(
    {name.removeprefix("OUTCOME_"): number for name, number in wire.Outcome.items()}
)
_NO_DONE = Done()


class Plan:
    """A job of one block, as far as `Staging` reads it."""

    def __init__(self) -> None:
        self.job = 0
        self.gradients = self.values = Layout((), (), IMAGE_BYTES)
        self.squared = self.blocks = ()
        self.push = WireForm()
        self.tables = ShardTables((), 0, 1)
        self.clips_norm = False


PLAN = Plan()


@dataclass(slots=True)
class Identity:
    worker: int
    incarnation: int


class Header:
    """A push's header as `Staging` reads it, one object for all shards.

    `nan_on` is the shard whose part has a NaN, or -1; `version` the parameters that the worker computed with.
    """

    __slots__ = ("examples", "id", "key", "kind", "nan_on", "push", "sequence", "total_bytes", "version")

    def __init__(self, push: Push, nan_on: int, version: int) -> None:
        name = push.id
        self.id = Identity(name.worker, name.incarnation)
        self.sequence = name.sequence
        self.key = (name.worker, name.incarnation, name.sequence)
        self.kind = VALUES if push.values else GRADIENTS
        self.examples = push.examples
        self.total_bytes = IMAGE_BYTES
        self.push = push
        self.nan_on = nan_on
        self.version = version

    def __repr__(self) -> str:
        return f"push {'/'.join(map(str, self.key))} of batch {self.push.batch} at step {self.push.base_step}"


class WireResult:
    """An outcome as `client.answers` reads it."""

    __slots__ = ("outcome", "parameter", "repeated", "sequence", "staleness")

    def __init__(self, result: Any) -> None:
        self.sequence = result.sequence
        self.outcome = OUTCOMES[result.outcome]
        self.repeated = result.repeated
        self.staleness = result.staleness
        self.parameter = result.parameter


class WireAnswer:
    """An answer as `client.answers` reads it."""

    __slots__ = ("done", "entry", "global_step", "position", "release", "result")

    def __init__(self, entry: Answer, position: int) -> None:
        self.entry = entry
        self.position = position
        self.global_step = entry.step
        self.result = WireResult(entry.result) if entry.result is not None else None
        self.release = entry.release
        self.done = entry.done or _NO_DONE

    def __repr__(self) -> str:
        release = f" releases {self.release.batch}" if self.release else ""
        return f"answer at {self.position}{release}{' done' if self.done is not _NO_DONE else ''}"

    def HasField(self, name: str) -> bool:  # protobuf's name
        value = getattr(self, name)
        return value is not None and value is not _NO_DONE


class Whole:
    """A shard's report of a whole part."""

    __slots__ = ("header", "non_finite")

    def __init__(self, header: Header, non_finite: str) -> None:
        self.header = header
        self.non_finite = non_finite

    def __repr__(self) -> str:
        return f"whole {self.header}{' with a NaN' if self.non_finite else ''}"


def square(shard: int, pushes: tuple[PushId, ...]) -> tuple[tuple[int, float], ...]:
    """What a shard reports as the sums of squares of a mean: any numbers that depend on both."""
    return ((0, 0.1 * (1 + shard) + sum(push.sequence % 7 for push in pushes) * 0.3),)
