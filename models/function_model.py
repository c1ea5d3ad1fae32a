"""A model that is a function of a batch: for programs that bring their own training loop."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import tensorflow as tf

from grpc_ps.models.optional import named
from grpc_ps.models.spec import ModelDefaults

Losses = Callable[[tf.Tensor, tf.Tensor], tf.Tensor]


class FunctionModel:
    """Trains `variables` by the mean of what `losses` says of each example, a tensor of shape [batch].

    The first values are those that the variables have when the job is opened, whatever its seed. Each variable is named
    as in TensorFlow, or by its key where `variables` is a mapping; those of one element are shown. Such a job has no
    end of its own.
    """

    data = "digits"

    def __init__(self, losses: Losses, variables: Mapping[str, tf.Variable] | Sequence[tf.Variable]) -> None:
        if isinstance(variables, Mapping):
            variables = [named(variable, name) for name, variable in variables.items()]
        self.name = str(getattr(losses, "__name__", type(losses).__name__))
        self.variables = tuple(variables)
        self.shown = tuple(
            str(getattr(each, "wire_name", None) or each.name).removesuffix(":0")
            for each in self.variables
            if each.shape.num_elements() == 1
        )
        self.defaults = ModelDefaults(optimizer="sgd", learning_rate=0.01, batch_size=1, steps=0)
        self._losses = losses

    def initialize(self, seed: int) -> None:
        """Nothing: the values are there."""

    def losses(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """See `spec.Model`."""
        return self._losses(features, labels)

    def metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """The loss of each example."""
        return {"loss": self._losses(features, labels)}
