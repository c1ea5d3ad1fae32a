"""Why the lead says no."""

from __future__ import annotations


class Refusal(Exception):
    """A request that the job's state forbids.

    Attributes:
        reason: a name of the protocol's "Refusals", such as `FENCED`.
        detail: one sentence for people that names the thing.
    """

    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason = reason
        self.detail = detail
