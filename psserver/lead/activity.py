"""What a worker does, for people."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.membership import Member
    from grpc_ps.psserver.lead.training import Training


def activity(member: Member, training: Training | None) -> str:
    """One of the words of `control.proto`'s WorkerStatus."""
    if training is None:
        return "starting"
    if member.out_of_data:
        return "out of data"
    if member.pending:
        return "waiting for its round"
    if member.batch is not None:
        return "computing"
    if not member.waiting:
        return "starting"
    if training.held:
        return "waiting for a checkpoint"
    if training.paused:
        return "paused"
    if training.numbers_are_out():
        return "idle"
    return training.rounds.waits if training.started else "waiting for others to join"
