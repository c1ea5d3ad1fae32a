"""The gradients of a session's batches: computed when they are due, or one ahead."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias

import tensorflow as tf

from grpc_ps.client import Reply
from grpc_ps.models import Array
from grpc_ps.worker.data import Feed
from grpc_ps.worker.slots import Fed
from grpc_ps.worker.variables import Variables

ComputeStep: TypeAlias = Callable[[Fed], tuple[tf.Tensor, dict[str, Array]]]
"""As `step.Step`."""


@dataclass(frozen=True)
class Computed:
    """A batch's mean loss and gradients by name; `base_step` is the global step of the parameters."""

    batch: Fed
    base_step: int
    loss: tf.Tensor
    gradients: Mapping[str, Array]


class Gradients:
    """Computes what a session sends.

    With `overlap` the gradient of the batch that is probably next is computed between `send` and `wait`: while the push
    before it is exchanged, and so with the same parameters as that one, one release older than they could be. They stay
    in their arrays until `wait`, so nothing is kept twice. It counts if its batch is the one that is released then;
    else that one is computed with the parameters that came with it.

    Args:
        lap: charges the time since it was last called to a phase.
        send: as `TrainingSession.send`.
    """

    def __init__(
        self,
        step: ComputeStep,
        variables: Variables,
        parameters: Mapping[str, Array],
        feed: Feed,
        *,
        overlap: bool = False,
        lap: Callable[[str], None] = lambda phase: None,
        send: Callable[..., None] = lambda gradients, examples, base_step: None,
    ) -> None:
        self.overlaps = overlap
        self._step = step
        self._variables = variables
        self._memory = _Memory(parameters.values())
        self._feed = feed
        self._lap = lap
        self._send = send
        self._ahead: Computed | None = None

    def ready(self, reply: Reply) -> Reply:
        """Has all that the reply's batch needs: the same reply, for the parameters came with it."""
        return reply

    def send(self, computed: Computed, hint: int | None) -> None:
        """Sends a gradient."""
        self._send(computed.gradients, computed.batch.examples, base_step=computed.base_step)

    def due(self, number: int, base_step: int) -> Computed | None:
        """The gradient of the batch that was released, with the parameters of that step; None if the data is used up.

        One that was computed ahead is of an older step. Raises DataError when the data set has failed.
        """
        ahead, self._ahead = self._ahead, None
        batch = self._feed.take(number)
        self._lap("input")
        if batch is None:
            return None
        # Of data without numbers the batch that was prepared is next, whatever its number.
        if self.overlaps and ahead is not None and ahead.batch.loading == batch.loading:
            return ahead
        return self._compute(batch, base_step)

    def look_ahead(self, hint: int | None, base_step: int) -> None:
        """Prepares the batch that is probably next, None if that is not known; with `overlaps` its gradient too.

        `base_step` is that of the parameters as they are now: of the last release.
        """
        self._feed.prepare(hint)
        batch = self._feed.prepared if self.overlaps else None
        if batch is not None:
            self._lap("input")
            computed = self._compute(batch, base_step)
            own = {name: self._memory.own(gradient) for name, gradient in computed.gradients.items()}
            self._ahead = replace(computed, gradients=own)

    def _compute(self, batch: Fed, base_step: int) -> Computed:
        self._variables.refresh()
        loss, gradients = self._step(batch)
        gradients.update(self._variables.deltas())
        self._lap("compute")
        return Computed(batch, base_step, loss, gradients)


class _Memory:
    """The memory of arrays that will be overwritten."""

    def __init__(self, arrays: Iterable[Array]) -> None:
        self._ranges = sorted(_range_of(array) for array in arrays)
        self._starts = [start for start, _ in self._ranges]

    def own(self, array: Array) -> Array:
        """The array, or a copy if it lies in that memory: a gradient may be a variable itself."""
        start, stop = _range_of(array)
        before = bisect_right(self._starts, stop - 1) - 1
        return array.copy() if before >= 0 and self._ranges[before][1] > start else array


def _range_of(array: Array) -> tuple[int, int]:
    start = array.ctypes.data
    return start, start + array.nbytes
