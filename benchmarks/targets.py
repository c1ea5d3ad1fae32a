"""The table of targets, and whether figures meet them. Pure."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Target:
    """One line: what is measured, beside what, and what the ratio of ours to that is to be.

    Attributes:
        key: names it on the command line and in JSON.
        relation: "at least" or "at most" the target, or "within" it of 1.
        target, stretch: the bound, and a further one that is worth reaching; None where there is none.
    """

    key: str
    work: str
    beside: str
    relation: str
    target: float
    stretch: float | None

    def met(self, ratio: float, bound: float | None) -> bool | None:
        """Whether the ratio keeps to a bound; None without one."""
        return None if bound is None else _RELATIONS[self.relation][1](ratio, bound)

    def bound(self, value: float | None) -> str:
        """A bound for people: `>= 2.0`."""
        return "" if value is None else f"{_RELATIONS[self.relation][0]}{value:g}"

    def judge(self, comparisons: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """The line's record: its worst comparison, judged by the median of the ratios."""
        worst = max(comparisons, key=lambda each: self._badness(each["ratio"]["median"]))
        median = worst["ratio"]["median"]
        return {
            "key": self.key,
            "work": self.work,
            "beside": self.beside,
            "relation": self.relation,
            "target": self.target,
            "stretch": self.stretch,
            "judged": worst["name"],
            "ratio": worst["ratio"],
            "met": self.met(median, self.target),
            "stretch_met": self.met(median, self.stretch),
            "comparisons": list(comparisons),
        }

    def _badness(self, ratio: float) -> float:
        return {"at least": -ratio, "at most": ratio, "within": abs(ratio - 1)}[self.relation]


# Of each relation: how it is written, and whether a ratio keeps to a bound.
_RELATIONS: Mapping[str, tuple[str, Callable[[float, float], bool]]] = {
    "at least": (">= ", lambda ratio, bound: ratio >= bound),
    "at most": ("<= ", lambda ratio, bound: ratio <= bound),
    "within": ("1 +- ", lambda ratio, bound: abs(ratio - 1) <= bound),
}


def _target(key: str, work: str, beside: str, relation: str, target: float, stretch: float | None) -> Target:
    return Target(key=key, work=work, beside=beside, relation=relation, target=target, stretch=stretch)


_RUNTIME = "TensorFlow's runtime"

TARGETS = (
    _target("async-2", "mnist async, 2 workers: steps/s", _RUNTIME, "at least", 2.0, 3.0),
    _target("async-1", "mnist async, 1 worker: steps/s", _RUNTIME, "at least", 1.7, 2.5),
    _target("sync-2", "mnist sync, 2 of 2: rounds/s", _RUNTIME, "at least", 1.5, 2.2),
    _target("large", "10 M parameters, 2 workers: steps/s", _RUNTIME, "at least", 0.85, 1.2),
    _target("large-bfloat16", "the same, --wire-dtype bfloat16", _RUNTIME, "at least", 1.2, 1.8),
    _target("sparse", "1 M x 64 table, 2 workers: rows/s", _RUNTIME, "at least", 1.2, None),
    _target("bound", "push 40 MB + Adagrad + pull: ms", "TCP + the kernel", "at most", 1.8, 1.3),
    _target("sizes", "1 MB to 1 GB: GB/s of push + pull", "16 MB", "within", 0.25, 0.10),
    _target("tensors", "161 tensors of ResNet-50: ms", "one tensor", "at most", 1.3, 1.1),
    _target("startup", "a worker's first step: s", "import and tracing", "at most", 1.3, 1.1),
    _target("memory", "a shard over TensorFlow's own: MB", "what it must hold", "at most", 1.25, None),
    _target("clients", "50 light clients: steps/s", "4 clients", "at least", 0.8, 1.0),
    _target("shards", "2 shards, mnist async: steps/s", "1 shard", "at least", 0.7, 0.9),
    _target("scaling", "cifar10 sync, 2 workers: images/s", "1 worker", "at least", 1.75, None),
)
