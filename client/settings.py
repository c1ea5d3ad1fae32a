"""A job's settings: names and values for callers, `job.proto`'s Settings on the wire."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.protos import control_pb2, job_pb2

Setting: TypeAlias = int | float | str | bool


def to_message(settings: Mapping[str, Any]) -> job_pb2.Settings:
    """Makes the message; what is not in the mapping is not stated. Raises ValueError for a name that is no setting."""
    return job_pb2.Settings(**settings)


def from_message(message: job_pb2.Settings) -> dict[str, Setting]:
    """Returns the settings that are stated, by their names in `job.proto`; all of them for those of a whole job."""
    return {field.name: value for field, value in message.ListFields()}


@dataclass(frozen=True, kw_only=True)
class Changed:
    """Where a change of the running job took place, and what holds from there on.

    Attributes:
        global_step: updates applied before the change.
        position: the entry of the lead's log behind which it stands.
        settings: all of the job's, by the names of `job.proto`.
        learning_rate_factor: what the schedule's learning rate is multiplied with.
        paused: whether nobody gets work.
    """

    global_step: int
    position: int
    settings: Mapping[str, Setting]
    learning_rate_factor: float
    paused: bool


def set_request(changes: Mapping[str, Any]) -> control_pb2.SetRequest:
    """Makes the message; what is None stays as it is.

    Raises:
        UsageError: nothing is to change, or a value that the message cannot carry.
    """
    stated = {name: value for name, value in changes.items() if value is not None}
    if not stated:
        raise UsageError("nothing to change is given")
    for name, value in stated.items():
        try:
            control_pb2.SetRequest(**{name: value})
        except (ValueError, TypeError):
            raise UsageError(f"{name} {value!r}: no possible value") from None
    return control_pb2.SetRequest(**stated)


def changed(response: control_pb2.SetResponse) -> Changed:
    """Converts the lead's answer."""
    return Changed(
        global_step=response.global_step,
        position=response.position,
        settings=from_message(response.settings),
        learning_rate_factor=response.learning_rate_factor,
        paused=response.paused,
    )
