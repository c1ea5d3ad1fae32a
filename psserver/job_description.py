"""The job as messages have it."""

from __future__ import annotations

from collections.abc import Sequence

from grpc_ps.client.shared.blocks import place
from grpc_ps.client.shared.codec import to_proto
from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.rows import tables_of
from grpc_ps.protos import job_pb2
from grpc_ps.psserver.lead.clipping import Squares
from grpc_ps.psserver.lead.joining import Definition
from grpc_ps.psserver.messages import specs_of_signatures


class JobDescription:
    """What the opener made the job, on the lead.

    Attributes:
        spec: the job as it was opened.
        owners: for each shard the parameter that each sum of squares is of, by its number in order of the names: of
            its trainable blocks, in order of the image, then two of each table.
    """

    def __init__(self, definition: Definition, shard_count: int) -> None:
        self._definition = definition
        specs = specs_of_signatures(definition.parameters)
        placement = place(specs, shard_count)
        self.spec = job_pb2.JobSpec(
            model=definition.model,
            parameters=[to_proto(spec) for spec in specs],
            settings=_settings(definition),
            plan_fingerprint=placement.fingerprint,
        )
        numbers = {name: number for number, name in enumerate(sorted(definition.parameters))}
        tables = tuple(numbers[spec.name] for spec in tables_of(specs) for _ in range(2))
        self.owners = [
            tuple(numbers[block.parameter] for block in blocks if block.trainable and block.floating) + tables
            for blocks in placement.shards
        ]

    def describes(self, definition: Definition) -> bool:
        """Whether this is that definition's."""
        return self._definition is definition

    def squares(self, shard: int, sums: Sequence[float]) -> Squares:
        """Says which parameter each sum of squares belongs to that a shard reports.

        Raises:
            InvalidPush: it is not one for each block that it has.
        """
        owners = self.owners[shard]
        if len(sums) != len(owners):
            raise InvalidPush(f"shard {shard} reports {len(sums)} sums of squares, it has {len(owners)} blocks")
        return tuple(zip(owners, sums, strict=True))

    def present(self) -> job_pb2.JobSpec:
        """The job with its settings as they are now."""
        spec = job_pb2.JobSpec()
        spec.CopyFrom(self.spec)
        spec.settings.CopyFrom(_settings(self._definition))
        return spec


def _settings(definition: Definition) -> job_pb2.Settings:
    return job_pb2.Settings(**definition.settings)  # type: ignore[arg-type]  # checked when they came
