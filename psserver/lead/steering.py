"""Changing a job while it runs."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.settings import MAX_FLOAT32, Settings, Value, check

_RULES = ("mode", "workers", "backup", "min_workers", "max_staleness")


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """What is to be otherwise from now on; None stays as it is."""

    mode: str | None = None
    workers: int | None = None
    backup: int | None = None
    min_workers: int | None = None
    max_staleness: int | None = None
    learning_rate_factor: float | None = None
    paused: bool | None = None

    def rules(self) -> dict[str, Value]:
        """The settings among it."""
        return {name: value for name, value in asdict(self).items() if name in _RULES and value is not None}

    def settings(self, now: Settings, live: int) -> dict[str, Value]:
        """Returns the job's settings with this change; `live` is how many workers there are.

        Raises:
            Refusal: MISMATCH for what is not possible.
        """
        factor = self.learning_rate_factor
        if factor is not None and not 0 < factor * float(now["learning_rate"]) <= MAX_FLOAT32:
            rule = "must be a number above 0 that leaves the learning rate finite and above 0"
            raise Refusal("MISMATCH", f"learning_rate_factor {factor} {rule}")
        changed = {**now, **self.rules()}
        check(changed)
        wanted = int(changed["workers"])
        if changed["mode"] == "sync" and wanted > live and (now["mode"] != "sync" or wanted > int(now["workers"])):
            raise Refusal(
                "MISMATCH",
                f"workers {wanted}: the job has {live} now, and a round would wait for more; "
                f"raise backup, start the others, then raise workers",
            )
        return changed
