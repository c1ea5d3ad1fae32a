"""Planted bugs in rounds and in the staleness bound. `mutants.py` says what finds them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from grpc_ps.psserver.lead import norms as norms_module
from grpc_ps.psserver.lead import rounds as rounds_module
from grpc_ps.psserver.lead import training as training_module
from grpc_ps.psserver.lead.batches import BatchNumbers
from grpc_ps.psserver.lead.clipping import Clipping
from grpc_ps.psserver.lead.membership import Member
from grpc_ps.psserver.lead.norms import Norms
from grpc_ps.psserver.lead.rounds import AsyncRounds, SyncRounds
from grpc_ps.psserver.lead.training import Training


def counts_pushes_instead_of_workers(patch: Any) -> None:
    """A worker that has contributed to the open round gets another number for it."""
    choose = SyncRounds.choose

    def forgetful(self: SyncRounds, member: Member, members: Any, numbers: BatchNumbers) -> int | None:
        whole, self._whole = self._whole, []
        try:
            return choose(self, member, members, numbers)
        finally:
            self._whole = whole

    patch.setattr(SyncRounds, "choose", forgetful)


def applies_a_late_gradient(patch: Any) -> None:
    """Nothing is ever late."""
    patch.setattr(SyncRounds, "is_late", lambda self, push, step: False)


def quorum_does_not_shrink(patch: Any) -> None:
    """The end of an epoch waits for N gradients as every other round does."""
    patch.setattr(SyncRounds, "_due", lambda self, numbers: self.needed)


def waits_for_absent_backups(patch: Any) -> None:
    """Workers out of data lower the quorum only when all N + K places are taken."""

    def able(self: Training) -> int:
        places = max(self.rounds.places, len(self._members))
        return places - sum(member.out_of_data for member in self._members)

    patch.setattr(Training, "_able", able)


def orders_by_arrival(patch: Any) -> None:
    """The mean is summed in the order in which pushes became whole."""
    take = SyncRounds.take

    def unsorted(self: SyncRounds, *args: Any) -> list[Any]:
        order = list(self._whole)
        taken = take(self, *args)
        return [push for push in order if push in taken]

    patch.setattr(SyncRounds, "take", unsorted)


def forgets_the_weights(patch: Any) -> None:
    """Every push counts alike, however many examples it has."""
    weights = rounds_module.weights
    for module in (norms_module, training_module):
        patch.setattr(module, "weights", lambda pushes: weights([replace(push, examples=1) for push in pushes]))


def ignores_the_staleness_bound(patch: Any) -> None:
    """Everybody goes as fast as it can."""
    patch.setattr(AsyncRounds, "choose", lambda self, member, members, numbers: numbers.next())


def starves_a_worker(patch: Any) -> None:
    """The last worker is passed over while the others have enough to do."""
    choose = AsyncRounds.choose

    def unfair(self: AsyncRounds, member: Member, members: Any, numbers: BatchNumbers) -> int | None:
        return None if len(members) > 1 and member is members[-1] else choose(self, member, members, numbers)

    patch.setattr(AsyncRounds, "choose", unfair)


def averages_twice(patch: Any) -> None:
    """A round is reduced anew each time a shard's report comes."""
    reduced = Norms.reduced

    def again(self: Norms, shard: int, position: int, squares: Any) -> Any:
        if self._mean is not None and self._mean.position == position and shard:
            self._log.append(self._log._kept[position - self._log.first])
        return reduced(self, shard, position, squares)

    patch.setattr(Norms, "reduced", again)


def steps_beyond_the_target(patch: Any) -> None:
    """The job goes on after its last step."""
    init = Training.__init__

    def longer(self: Training, settings: Any, *rest: Any, **more: Any) -> None:
        init(self, settings, *rest, **more)
        self._target += bool(self._target)

    patch.setattr(Training, "__init__", longer)


def clips_by_a_part_of_the_norm(patch: Any) -> None:
    """The norm of the gradient is that of its first piece."""
    scales = Clipping.scales
    patch.setattr(Clipping, "scales", lambda self, squares: scales(self, list(squares)[:1]))


def forgets_the_learning_rate_factor(patch: Any) -> None:
    """A change of the learning rate takes no effect."""
    patch.setattr(Training, "learning_rate", property(lambda self: self._rate(self.step)))
