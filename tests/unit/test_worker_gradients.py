"""Gradients that are computed one ahead: with which parameters, of which batch, and when they count."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import pytest
import tensorflow as tf

from grpc_ps.models import Batch
from grpc_ps.models.datasets.line import Line
from grpc_ps.worker.data import Feed, NumberedFeed, source
from grpc_ps.worker.gradients import Computed, Gradients
from grpc_ps.worker.slots import Fed
from grpc_ps.worker.streams import StreamFeed
from grpc_ps.worker.tensors import aligned_array
from grpc_ps.worker.variables import Variables


class Tape:
    """A stream of so many batches: batch i has i + 1 examples."""

    examples = 0
    fingerprint = "tape"

    def __init__(self, batches: int) -> None:
        self._batches = batches

    def batches(self, batch_size: int, seed: int, share: int) -> Iterable[Batch]:
        for number in range(self._batches):
            yield np.full(number + 1, number, np.float32), np.zeros(number + 1, np.float32)


class Bed:
    """A step whose gradient is the parameter w itself; `computed` has the examples of each batch and w."""

    def __init__(self, feed: Feed, *, overlap: bool = True) -> None:
        self.computed: list[tuple[int, float]] = []
        self.w = aligned_array((2,), np.dtype(np.float32))
        variable = tf.Variable([0.0, 0.0], name="w")
        variables = Variables([variable], {"w": self.w})
        self.gradients = Gradients(self._step, variables, {"w": self.w}, feed, overlap=overlap)

    def _step(self, batch: Fed) -> tuple[tf.Tensor, dict[str, np.ndarray]]:
        self.computed.append((batch.number, float(self.w[0])))
        return tf.constant(0.0), {"w": self.w}

    def release(self, value: float) -> None:
        self.w[:] = value

    def due(self, number: int, step: int) -> Computed:
        found = self.gradients.due(number, step)
        assert found is not None
        return found


def numbered() -> NumberedFeed:
    return NumberedFeed(source(Line(), batch_size=10, seed=0))


def value(gradients: Mapping[str, np.ndarray]) -> float:
    assert len(set(gradients["w"].tolist())) == 1
    return float(gradients["w"][0])


def test_the_next_gradient_is_of_the_parameters_before_the_exchange() -> None:
    bed = Bed(numbered())
    bed.release(5.0)
    assert bed.due(7, 20).base_step == 20
    bed.gradients.look_ahead(9, 20)
    bed.release(6.0)
    ahead = bed.due(9, 21)
    assert (ahead.batch.number, ahead.base_step) == (9, 20)
    assert value(ahead.gradients) == 5.0, "the memory of the parameters has been written to since"
    assert bed.computed == [(7, 5.0), (9, 5.0)]


def test_a_gradient_in_memory_of_its_own_is_not_copied() -> None:
    bed = Bed(numbered())
    mine = np.ones(2, np.float32)
    bed.gradients._step = lambda batch: (tf.constant(0.0), {"w": mine})
    bed.due(0, 0)
    bed.gradients.look_ahead(1, 0)
    assert bed.due(1, 1).gradients["w"] is mine


def test_another_batch_than_the_hint_is_computed_with_the_new_parameters() -> None:
    bed = Bed(numbered())
    bed.due(0, 0)
    bed.gradients.look_ahead(2, 0)
    bed.release(6.0)
    found = bed.due(1, 3)
    assert (found.batch.number, found.base_step, value(found.gradients)) == (1, 3, 6.0)
    features, _ = source(Line(), batch_size=10, seed=0).batch(1)
    assert found.batch.features.numpy().tolist() == features.tolist()
    assert bed.computed == [(0, 0.0), (2, 0.0), (1, 6.0)]


def test_without_a_hint_nothing_is_computed_ahead() -> None:
    bed = Bed(numbered())
    bed.due(0, 0)
    bed.gradients.look_ahead(None, 0)
    assert bed.due(1, 1).base_step == 1
    assert bed.computed == [(0, 0.0), (1, 0.0)]


def test_without_overlap_the_hint_is_only_prepared() -> None:
    bed = Bed(numbered(), overlap=False)
    bed.due(0, 0)
    bed.gradients.look_ahead(1, 0)
    bed.release(6.0)
    assert bed.due(1, 1).base_step == 1
    assert bed.computed == [(0, 0.0), (1, 6.0)]


def test_data_without_numbers_is_computed_ahead_whatever_number_comes() -> None:
    bed = Bed(StreamFeed(Tape(3), batch_size=1, seed=0, share=0))
    examples = [bed.due(10, 0).batch.examples]
    for step, (hint, released) in enumerate([(11, 14), (None, 12)]):
        bed.gradients.look_ahead(hint, step)
        bed.release(step + 1.0)
        found = bed.due(released, step + 1)
        examples.append(found.batch.examples)
        assert (found.base_step, value(found.gradients)) == (step, float(step))
    bed.gradients.look_ahead(15, 3)
    assert bed.gradients.due(15, 3) is None, "the share is used up"
    assert examples == [1, 2, 3]
    assert len(bed.computed) == 3


@pytest.mark.parametrize("stream", [False, True])
def test_what_was_computed_ahead_is_computed_anew_once_rounds_begin(stream: bool) -> None:
    bed = Bed(StreamFeed(Tape(3), batch_size=1, seed=0, share=0) if stream else numbered())
    bed.due(0, 0)
    bed.gradients.look_ahead(1, 0)
    bed.release(6.0)
    bed.gradients.overlaps = False
    found = bed.due(1, 4)
    assert (found.base_step, value(found.gradients)) == (4, 6.0)
    if stream:
        assert found.batch.examples == 2, "no batch of the share is lost"


def test_a_share_goes_on_with_the_batch_whose_gradient_was_never_sent() -> None:
    feed = StreamFeed(Tape(3), batch_size=1, seed=0, share=0)
    bed = Bed(feed)
    bed.due(0, 0)
    bed.gradients.look_ahead(1, 0)
    again = Bed(feed)
    assert again.due(5, 40).batch.examples == 2
