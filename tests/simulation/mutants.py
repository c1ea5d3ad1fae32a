"""Planted bugs: the real lead, staging or client with one rule broken, to see that the simulator notices.

Each is a function that breaks the classes through pytest's monkeypatch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from simulation import mutants_of_checkpoints as checkpoints
from simulation import mutants_of_numbers as numbers
from simulation import mutants_of_pushes as pushes
from simulation import mutants_of_rounds as rounds

Mutant = Callable[[Any], None]


class Planted:
    """What finds a planted bug: one of these kinds of violations, in few events from the `first` seed on."""

    def __init__(self, *kinds: str, first: int = 0) -> None:
        self.kinds = kinds
        self.first = first


AGAIN = 1000
"""The first seed of jobs with checkpoints."""

MUTANTS: Mapping[Mutant, Planted] = MappingProxyType(
    {
        rounds.counts_pushes_instead_of_workers: Planted("distinct-workers", "quorum", first=85),
        rounds.applies_a_late_gradient: Planted("late-gradient"),
        numbers.loses_a_returned_number: Planted("number-lost", "number-order"),
        numbers.hands_a_number_out_twice: Planted("number-twice"),
        pushes.decides_by_one_shard: Planted("not-whole"),
        pushes.forgets_to_fence: Planted("fenced", "unknown-push", "outcome", first=80),
        pushes.applies_a_resent_push_twice: Planted("applied-twice", first=75),
        numbers.keeps_the_number_of_a_lost_worker: Planted("number-order", "number-lost", "stuck", "exit-code"),
        rounds.quorum_does_not_shrink: Planted("stuck", "exit-code"),
        rounds.orders_by_arrival: Planted("order-of-batches"),
        pushes.drops_a_kept_push: Planted("not-whole", first=40),
        rounds.ignores_the_staleness_bound: Planted("staleness-bound"),
        numbers.retires_the_number_of_a_late_push: Planted("number-order", "number-lost"),
        numbers.releases_without_a_number: Planted("number-lost", "number-twice"),
        pushes.forgets_to_free_a_late_part: Planted("staging", "refused"),
        pushes.releases_before_the_update: Planted("mixture"),
        pushes.mixes_positions: Planted("mixture", "release", first=155),
        rounds.forgets_the_weights: Planted("weights"),
        pushes.loses_the_wait_of_a_repeated_outcome: Planted("stuck", "starved"),
        pushes.ignores_an_overflow: Planted("stuck", "starved", first=75),
        rounds.starves_a_worker: Planted("starved", first=65),
        rounds.averages_twice: Planted("reduce"),
        pushes.keeps_going_after_a_lost_shard: Planted("not-whole", "stuck", first=85),
        rounds.waits_for_absent_backups: Planted("exit-code"),
        numbers.keeps_a_retired_epoch_open: Planted("stuck", "starved", first=930),
        pushes.refuses_values_after_the_end: Planted("refused", first=5445),
        rounds.clips_by_a_part_of_the_norm: Planted("scales"),
        rounds.forgets_the_learning_rate_factor: Planted("learning-rate", first=55),
        rounds.steps_beyond_the_target: Planted("overshoot", "no-end"),
        checkpoints.saves_without_the_leases: Planted("saved-state", first=AGAIN),
        checkpoints.saves_the_cursor_one_off: Planted("saved-state", first=AGAIN),
        checkpoints.saves_before_the_update: Planted("saved-state", first=AGAIN),
        checkpoints.saves_the_settings_of_another_position: Planted("saved-state", first=1120),
        checkpoints.commits_what_one_shard_has_written: Planted("saved-parts", first=AGAIN),
        checkpoints.takes_the_part_of_another_attempt: Planted("saved-parts", first=AGAIN),
        checkpoints.begins_before_anything_is_saved: Planted("unsaved", first=AGAIN),
        checkpoints.ends_before_the_commit: Planted("unsaved-end", first=AGAIN),
        checkpoints.gives_up_the_last_checkpoint_at_once: Planted("exit-code", first=AGAIN),
        checkpoints.resumes_from_the_checkpoint_before: Planted("begins-from", first=AGAIN),
        checkpoints.resumes_from_a_damaged_checkpoint: Planted("begins-from", first=AGAIN),
        checkpoints.resumes_from_an_uncommitted_attempt: Planted("begins-from", first=AGAIN),
        checkpoints.forgets_the_returned_numbers: Planted("number-order", "number-lost", "sequence", first=AGAIN),
        checkpoints.forgets_the_factor_of_a_checkpoint: Planted("learning-rate", first=1630),
        checkpoints.starts_at_once_after_a_restart: Planted("not-started", first=1055),
        checkpoints.waits_for_a_shard_for_ever: Planted("stuck", first=AGAIN),
        checkpoints.waits_for_a_start_after_a_rollback: Planted("exit-code", first=12_290),
        checkpoints.forgets_a_stop: Planted("stop-forgotten", first=2435),
        checkpoints.keeps_what_a_follower_had: Planted("order", "different", "crash", "refused", first=AGAIN),
        checkpoints.counts_positions_of_another_generation: Planted("order", "starved", "stuck", first=AGAIN),
        checkpoints.hears_links_of_an_older_generation: Planted("crash", "not-whole", "unknown-push", first=5850),
        checkpoints.asks_only_for_the_incarnation: Planted("refused", first=1735),
        checkpoints.welcomes_an_older_generation: Planted(
            "unknown-push", "fenced", "outcome", "release", "refused", first=AGAIN
        ),
    }
)
