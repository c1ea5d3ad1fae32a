"""What a worker says when it wants to take part, and whether the job can have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.settings import Settings, Signature, Value, check_agreement, check_parameters


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A worker that wants to take part."""

    nonce: int
    name: str
    index: int | None
    run: int
    shard_count: int
    model: str
    parameters: Mapping[str, Signature]
    stated: Settings
    defaults: Settings


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinReply:
    """What a worker is told: `state` is WAITING, OPENER, MEMBER or DONE."""

    state: str
    member: Member | None = None
    waiting_for: str = ""


@dataclass(slots=True)
class Definition:
    """What the opener made the job."""

    model: str
    settings: dict[str, Value]
    parameters: Mapping[str, Signature]
    opener: Member

    def check(self, request: JoinRequest) -> None:
        """Refuses a newcomer with another model or other settings.

        Raises:
            Refusal: MISMATCH, with both values.
        """
        models = f"model: the job trains {self.model!r}, this worker {request.model!r}; "
        check_parameters(self.parameters, request.parameters, models if request.model != self.model else "")
        check_agreement(self.settings, request.stated)
