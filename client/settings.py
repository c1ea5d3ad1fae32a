"""A job's settings: names and values for callers, `job.proto`'s Settings on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from grpc_ps.protos import job_pb2

Setting: TypeAlias = int | float | str | bool


def to_message(settings: Mapping[str, Any]) -> job_pb2.Settings:
    """Makes the message; what is not in the mapping is not stated. Raises ValueError for a name that is no setting."""
    return job_pb2.Settings(**settings)


def from_message(message: job_pb2.Settings) -> dict[str, Setting]:
    """Returns the settings that are stated, by their names in `job.proto`; all of them for those of a whole job."""
    return {field.name: value for field, value in message.ListFields()}
