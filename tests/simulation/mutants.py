"""Planted bugs: the real lead, staging or client with one rule broken, to see that the simulator notices.

Each is a function that breaks the classes through pytest's monkeypatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from simulation import mutants_of_numbers as numbers
from simulation import mutants_of_pushes as pushes
from simulation import mutants_of_rounds as rounds

Mutant = Callable[[Any], None]


class Planted:
    """What finds a planted bug: one of these kinds of violations, in few events from the `first` seed on."""

    def __init__(self, *kinds: str, first: int = 0) -> None:
        self.kinds = kinds
        self.first = first


MUTANTS: Mapping[Mutant, Planted] = MappingProxyType(
    {
        rounds.counts_pushes_instead_of_workers: Planted("distinct-workers", "quorum"),
        rounds.applies_a_late_gradient: Planted("late-gradient"),
        numbers.loses_a_returned_number: Planted("number-lost", "number-order"),
        numbers.hands_a_number_out_twice: Planted("number-twice"),
        pushes.decides_by_one_shard: Planted("not-whole"),
        pushes.forgets_to_fence: Planted("fenced", "unknown-push", "outcome"),
        pushes.applies_a_resent_push_twice: Planted("applied-twice"),
        numbers.keeps_the_number_of_a_lost_worker: Planted("number-order", "number-lost", "stuck", "exit-code"),
        rounds.quorum_does_not_shrink: Planted("stuck", "exit-code"),
        rounds.orders_by_arrival: Planted("order-of-batches"),
        pushes.drops_a_kept_push: Planted("not-whole"),
        rounds.ignores_the_staleness_bound: Planted("staleness-bound"),
        numbers.retires_the_number_of_a_late_push: Planted("number-order", "number-lost"),
        numbers.releases_without_a_number: Planted("number-lost", "number-twice"),
        pushes.forgets_to_free_a_late_part: Planted("staging", "refused"),
        pushes.releases_before_the_update: Planted("mixture"),
        pushes.mixes_positions: Planted("mixture", "release"),
        rounds.forgets_the_weights: Planted("weights"),
        pushes.loses_the_wait_of_a_repeated_outcome: Planted("stuck", "starved"),
        pushes.ignores_an_overflow: Planted("stuck", "starved"),
        rounds.starves_a_worker: Planted("starved"),
        rounds.averages_twice: Planted("reduce"),
        pushes.keeps_going_after_a_lost_shard: Planted("not-whole", "stuck"),
        rounds.waits_for_absent_backups: Planted("exit-code"),
        numbers.keeps_a_retired_epoch_open: Planted("stuck", "starved", first=280),
        pushes.refuses_values_after_the_end: Planted("refused", first=850),
        rounds.clips_by_a_part_of_the_norm: Planted("scales"),
        rounds.forgets_the_learning_rate_factor: Planted("learning-rate"),
        rounds.steps_beyond_the_target: Planted("overshoot", "no-end"),
    }
)
