"""What a worker says when it wants to take part, and whether the job can have it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.refusal import Refusal
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


@dataclass(slots=True, kw_only=True)
class Definition:
    """What the opener made the job.

    Attributes:
        settings: as they are now; `opened` as they were at first.
        opener: None for a job that began from a checkpoint.
        folder: that of the checkpoint it began from, for people; empty for none.
    """

    model: str
    settings: dict[str, Value]
    parameters: Mapping[str, Signature]
    opened: Mapping[str, Value]
    opener: Member | None = None
    folder: str = ""

    def check(self, request: JoinRequest) -> None:
        """Refuses a newcomer with another model or other settings.

        Raises:
            Refusal: MISMATCH, with both values.
        """
        self.check_model(request)
        check_agreement(self.settings, self.news(request.stated))

    def check_model(self, request: JoinRequest) -> None:
        """Refuses a newcomer with another model: MISMATCH."""
        models = f"model: the job trains {self.model!r}, this worker {request.model!r}; "
        saved = f"; the job goes on from {self.folder}: another model needs another --checkpoint-dir"
        check_parameters(
            self.parameters,
            request.parameters,
            models if request.model != self.model else "",
            saved if self.folder else "",
        )

    def news(self, stated: Settings) -> dict[str, Value]:
        """What somebody states that the job has not now, and, where it was changed since, had not at first either.

        A worker that comes back with its first command line is welcome, whatever was changed since.
        """
        return {
            name: value
            for name, value in stated.items()
            if name not in self.settings or value not in (self.settings[name], self.opened[name])
        }


def check_list(listed: int, shards: int) -> None:
    """Refuses who knows another number of shards than the job has: MISMATCH."""
    if listed != shards:
        raise Refusal("MISMATCH", f"--ps lists {listed} shards, the job has {shards}")


def check_join(
    request: JoinRequest, *, run: int, shards: int, definition: Definition | None, presets: Settings
) -> None:
    """Refuses a newcomer that the job cannot have; `definition` is None before somebody opens it.

    Raises:
        Refusal: WRONG_RUN or MISMATCH.
    """
    if request.run and request.run != run:
        raise Refusal("WRONG_RUN", "that job is gone: another one runs here")
    check_list(request.shard_count, shards)
    if definition is None:
        check_agreement(presets, request.stated, "shard 0")
    else:
        definition.check(request)
