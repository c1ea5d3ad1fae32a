"""Planted bugs are found, each by the rule that it breaks and within few events."""

from __future__ import annotations

import pytest
from simulation.mutants import MUTANTS, Mutant
from simulation.violation import Violation
from simulation.world import World

ENOUGH = 500_000
"""Events within which a planted bug shows."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.__name__)
def test_a_planted_bug_is_found(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    mutant(monkeypatch)
    planted = MUTANTS[mutant]
    events, seed = 0, planted.first
    while events < ENOUGH:
        world = World(seed)
        try:
            world.run()
        except Violation as violation:
            if violation.kind in planted.kinds:
                return
        events, seed = events + world.agenda.events, seed + 1
    pytest.fail(f"{mutant.__doc__} Not found within {events} events from seed {planted.first} on.")
