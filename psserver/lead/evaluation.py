"""Who evaluates, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from grpc_ps.psserver.lead.membership import Member, Membership
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.until import Until

MAX_METRICS = 64
MAX_NAME = 100
"""Characters."""


class Evaluation:
    """The lease to evaluate, which one live worker holds, and the newest result.

    Not guarded: used by the lead's event loop alone.

    Attributes:
        holder: the holder's incarnation, 0 if there is none.
        step: global step of the newest result, -1 before the first; `metrics` are its means by name.
        until: what ends the job, if anything.
    """

    def __init__(self) -> None:
        self.holder = 0
        self.step = -1
        self.metrics: Mapping[str, float] = MappingProxyType({})
        self.until: Until | None = None

    def assign(self, members: Membership) -> None:
        """Gives the lease to the first member, if nobody holds it."""
        if all(member.incarnation != self.holder for member in members):
            self.holder = next((member.incarnation for member in members), 0)

    def take(self, member: Member, step: int, metrics: Mapping[str, float], now: int) -> str:
        """Takes a result of that step, while the job is at step `now`; returns why the job ends with it, or nothing.

        Raises:
            Refusal: USAGE for too many or too long metrics, for a member that does not hold the lease, and for a step
                that is yet to come.
        """
        if member.incarnation != self.holder or step > now:
            raise Refusal("USAGE", f"worker {member.worker} is not the one to report an evaluation of step {step}")
        if len(metrics) > MAX_METRICS or any(len(name) > MAX_NAME for name in metrics):
            raise Refusal(
                "USAGE", f"an evaluation has at most {MAX_METRICS} metrics, with names of {MAX_NAME} characters"
            )
        if step <= self.step:
            return ""
        self.step, self.metrics = step, dict(metrics)
        until = self.until
        if until is None or not until.reached(metrics):
            return ""
        return f"{until.metric} {metrics[until.metric]:.6g} {until.relation} {until.value:g} at global step {step}"
