"""What a model may have beyond `spec.Model`, and who asks for it. Nothing of this has to be inherited either."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol, runtime_checkable

from grpc_ps.models.spec import Array

if TYPE_CHECKING:
    import tensorflow as tf


class ModelError(ValueError):
    """A user's model cannot be trained as it is. The text says why, and what to do."""


@runtime_checkable
class FitsData(Protocol):
    """A model whose variables or loss depend on what the data looks like."""

    def fit_to(self, features: Array, labels: Array) -> None:
        """Takes one example, a batch of one as the model will get them; called once, before `variables` is read.

        Raises:
            ModelError: the model does not take such data.
        """


@runtime_checkable
class BatchLoss(Protocol):
    """A model whose loss is more than the mean over its examples, as with a regularizer."""

    def batch_loss(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The loss of a batch as in training, a scalar: used in place of the mean of `losses`."""


@runtime_checkable
class Seeded(Protocol):
    """A model that draws random numbers within a step, as dropout does.

    The step sets its seed anew before each loss, from the job's seed and the batch's number alone. So a step is the
    same whoever computes it, and after a resume. `wants_seed` is False where nothing is drawn: then nothing is set.
    """

    @property
    def wants_seed(self) -> bool:
        """Whether there is anything to seed."""

    def set_seed(self, seed: tf.Tensor) -> None:
        """Takes the seed of the next loss, int64 of shape [2]; called where the step is traced."""


@runtime_checkable
class BatchMetrics(Protocol):
    """A model whose metrics are no means over examples, as the area under a curve: they are fed batch by batch."""

    def reset_metrics(self) -> None:
        """Begins anew."""

    def update_metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Takes a batch and returns the metrics of all batches so far, scalars. Used in place of `metrics`."""


@runtime_checkable
class Predicts(Protocol):
    """A model that can be exported to be served."""

    @property
    def serving(self) -> tf.TensorSpec:
        """Shape and type of the features, the first extent None."""

    def predict(self, features: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """What the model says of each example, by name, as in use; changes nothing."""


def named(variable: tf.Variable, name: str) -> tf.Variable:
    """Gives a variable the name that it has as a parameter, where TensorFlow's own will not do, and returns it."""
    variable.wire_name = name
    return variable
