"""What the simulator raises when a rule is broken."""

from __future__ import annotations


class Violation(AssertionError):
    """An invariant does not hold. `kind` is its name, as `README.md` in this folder lists them."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(kind, detail)
        self.kind = kind
        self.detail = detail

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"
