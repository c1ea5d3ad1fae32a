"""Which scripts answer which lines of the table, in the full and in the short form. Pure."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

_LARGE = "--workers 2 --layers 3 --hidden 2048 --batch 10 --peer-steps 150"
PLOTTED = "plot"
"""Key of what is measured for the plot alone."""


@dataclass(frozen=True, kw_only=True)
class Run:
    """One call of a script.

    Attributes:
        keys: the targets that it answers. One takes all the comparisons that come, of several each takes its own.
        flags: in both forms; `full` and `quick` are added in theirs. None: not run in the short form.
        peers: whether it takes --peer and --data-dir, as peers.py does.
    """

    keys: tuple[str, ...]
    script: str
    flags: str = ""
    full: str
    quick: str | None
    peers: bool = False

    def arguments(self, *, quick: bool) -> list[str]:
        """What follows the script's name."""
        return shlex.split(f"{self.flags} {self.quick if quick else self.full} --json")

    def split(self, comparisons: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
        """The comparisons of each key."""
        if len(self.keys) == 1:
            return {self.keys[0]: list(comparisons)}
        return {key: [comparison] for key, comparison in zip(self.keys, comparisons, strict=True)}


_SHORT = "--repeats 1 --warm-up 1 --seconds 2"
_SHORT_PEER = f"{_SHORT} --peer-steps 800"
_FIVE = "--repeats 5"

# In the order in which the short form would miss them most.
RUNS = (
    Run(keys=("async-2",), script="peers.py", flags="--workers 2", full=_FIVE, quick=_SHORT_PEER, peers=True),
    Run(keys=("bound",), script="bound.py", full=_FIVE, quick="--repeats 3 --steps 10"),
    Run(keys=("tensors",), script="tensors.py", full=_FIVE, quick="--repeats 2 --steps 4"),
    Run(keys=("sync-2",), script="peers.py", flags="--workers 2 --sync", full=_FIVE, quick=_SHORT_PEER, peers=True),
    Run(
        keys=("large", "large-bfloat16"),
        script="peers.py",
        flags=f"{_LARGE} --ours= --ours='--wire-dtype bfloat16'",
        full=_FIVE,
        quick=_SHORT,
        peers=True,
    ),
    Run(keys=("sparse",), script="sparse.py", full=_FIVE, quick=_SHORT),
    Run(keys=("clients",), script="clients.py", full=_FIVE, quick="--repeats 1 --seconds 2"),
    Run(keys=("sizes",), script="sizes.py", full=_FIVE, quick="--repeats 1 --sizes 1,256"),
    Run(keys=("startup",), script="startup.py", full=_FIVE, quick="--repeats 1"),
    Run(keys=("memory",), script="memory.py", full=_FIVE, quick="--repeats 1 --sizes 40 --members 4"),
    Run(keys=("shards",), script="two_shards.py", full=_FIVE, quick=_SHORT),
    Run(keys=("async-1",), script="peers.py", flags="--workers 1", full=_FIVE, quick=_SHORT_PEER, peers=True),
    Run(keys=("scaling",), script="scaling.py", flags="--ours-only", full=_FIVE, quick=_SHORT),
    Run(keys=(PLOTTED,), script="model_sizes.py", full="--repeats 3", quick=None, peers=True),
)
