"""Keras models as they are, trained by several workers, beside Keras in one process."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import keras
import numpy as np
import pytest
from keras_models import adapted, assert_close, by_hand, cnn, first_values, images
from real_worker import Trained, train

from grpc_ps.models.keras_model import KerasModel
from grpc_ps.worker.variables import wire_name

STEPS, BATCH, SEED = 20, 8, 3


def in_rounds(make: Callable[[], keras.Model], **more: Any) -> list[Trained]:
    """Twenty rounds of two workers."""
    stated = {"batch_size": BATCH, "seed": SEED, "steps": STEPS}
    return train([adapted(make)] * 2, mode="sync", stated=stated, **more)


def loaded(make: Callable[[], keras.Model], one: Trained) -> KerasModel:
    """A fresh model with the values that a worker read."""
    model = first_values(make, 0)
    for variable in model.variables:
        variable.assign(one.read.values[wire_name(variable)])
    return model


def test_two_workers_train_as_one_process_with_the_whole_batch_does() -> None:
    """No batch normalization: halves of a batch are as good as the whole, to 1e-4 after 20 steps with momentum."""
    found = in_rounds(cnn)
    model = first_values(cnn, SEED)
    # Keras's own training loop, on the same examples in the same order, twice as many at a time.
    from grpc_ps.worker.data import Order

    order = Order(examples=96, batch_size=BATCH, seed=SEED)
    features, labels = images(0)
    for step in range(STEPS):
        whole = np.concatenate([order.indices(2 * step), order.indices(2 * step + 1)])
        model.keras.train_on_batch(features[whole], labels[whole])
    for one in found:
        assert one.read.global_step == STEPS
        assert_close(model, one.read.values, 1e-4)


def test_batch_normalization_shares_what_halves_of_batches_do_to_its_statistics() -> None:
    def make() -> keras.Model:
        return cnn(norm=True)

    found = in_rounds(make, shards=2)
    model = first_values(make, SEED)
    by_hand(model.keras, steps=STEPS, parts=2, batch_size=BATCH, seed=SEED)
    assert_close(model, found[0].read.values, 1e-4)
    moved = [values for name, values in found[0].read.values.items() if "moving" in name]
    assert len(moved) == 2
    assert all(np.ptp(values) > 0 for values in moved)
    # All workers have the same model, and evaluate it as Keras does.
    expected = loaded(make, found[0]).keras.evaluate(*images(1), verbose=0, return_dict=True)
    evaluated = [one.summary["metrics"] for one in found if one.summary["metrics"]]
    assert evaluated
    for metrics in evaluated:
        assert metrics == pytest.approx(expected, abs=1e-6)
    first, second = (loaded(make, one).keras(images(1)[0], training=False).numpy() for one in found)
    np.testing.assert_allclose(first, second, atol=1e-6)


def test_dropout_is_the_same_from_run_to_run_and_for_other_numbers_of_shards() -> None:
    runs = [in_rounds(lambda: cnn(dropout=True), shards=shards) for shards in (1, 1, 2)]
    bits = {tuple(each.tobytes() for _, each in sorted(run[0].read.values.items())) for run in runs}
    assert len(bits) == 1
    plain = in_rounds(cnn)[0].read.values
    assert not np.array_equal(plain["dense/bias"], runs[0][0].read.values["dense/bias"])
