"""What a model and a data set are to the framework. Neither knows that a cluster exists.

A model is any object with the attributes of `Model`; nothing has to be inherited. A data set gives examples by
index (`Dataset`), draws them without end (`EndlessDataset`), or has batches that come one after the other
(`StreamDataset`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, runtime_checkable

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:  # Models are listed, and their arguments checked, without TensorFlow.
    import tensorflow as tf

Array: TypeAlias = npt.NDArray[Any]
Setting: TypeAlias = float | int | str | bool
Batch: TypeAlias = tuple[Array, Array]
"""Features and labels of some examples; the first extent of both is the number of examples."""


class DataFileError(Exception):
    """A data file is missing, damaged or not what its name says. The text begins with its path."""


@dataclass(frozen=True, kw_only=True)
class ModelDefaults:
    """What a model trains with where nobody states anything else.

    `hyper` has further settings by their names among the job's, such as `initial_accumulator`, `schedule` or
    `moving_average`. `steps` are global steps. With `unsupported`, the reason why the model's own optimizer is not this
    one, a job has to state an optimizer.
    """

    optimizer: str
    learning_rate: float
    batch_size: int
    steps: int
    hyper: Mapping[str, Setting] = field(default_factory=dict)
    unsupported: str = ""


@runtime_checkable
class Dataset(Protocol):
    """Examples that can be taken by index.

    Features of type uint8 are pixels, in this as in other kinds of data sets: they stay bytes in memory and reach the
    model as float32 in [0, 1]. Every other type reaches it unchanged.
    """

    @property
    def examples(self) -> int:
        """Number of examples, at least one."""

    @property
    def fingerprint(self) -> str:
        """Says what the data is: equal in every process that has the same examples in the same order."""

    def take(self, indices: npt.NDArray[np.int64]) -> Batch:
        """Copies of the examples at `indices`, in that order."""


@runtime_checkable
class AugmentedDataset(Dataset, Protocol):
    """Examples of which training sees others, made of them at random: crops, mirrored images.

    The batch alone decides what is made, not who computes it: the generator is one of the job's seed and the batch's
    number.
    """

    def augment(self, indices: npt.NDArray[np.int64], generator: np.random.Generator) -> Batch:
        """What is made of the examples at `indices`, in that order; `take` gives them as evaluation has them."""


@runtime_checkable
class EndlessDataset(Protocol):
    """Examples drawn anew for every batch; `examples` is zero. The generator alone decides what is drawn."""

    @property
    def examples(self) -> int:
        """Zero."""

    @property
    def fingerprint(self) -> str:
        """Says what is drawn."""

    def draw(self, generator: np.random.Generator, count: int) -> Batch:
        """Draws `count` examples."""


@runtime_checkable
class StreamDataset(Protocol):
    """Batches that come one after the other, as from a generator; `examples` is zero.

    Each worker has a share of its own, named by the worker's index, and takes the next batch of it for whatever batch
    number it gets. Which examples a step uses thus depends on who computes it; what a lost worker, or a push that came
    too late, had taken is not used again. A worker whose share is used up waits for the end of the job, which comes
    when all shares are used up, or at the job's last step. A worker that starts anew begins its share anew.

        class Lines:
            examples = 0
            fingerprint = "lines-of-2024"

            def batches(self, batch_size, seed, share):
                for part in sorted(FOLDER.glob(f"part-{share}-*.npz")):
                    yield load(part)
    """

    @property
    def examples(self) -> int:
        """Zero."""

    @property
    def fingerprint(self) -> str:
        """Says what the data is: equal in every process of the job."""

    def batches(self, batch_size: int, seed: int, share: int) -> Iterable[Batch]:
        """The batches of one share, perhaps none. Called once, in the process of the worker with that index.

        `batch_size` is the job's; batches may have other lengths, and empty ones are passed over.
        """


TrainData: TypeAlias = Dataset | EndlessDataset | StreamDataset


@dataclass(frozen=True, kw_only=True)
class DataBundle:
    """The data of one job. `test` is None if nothing is set aside; `description` is shown to people.

    `assumed`: nobody has named any data, and so these are taken.
    """

    train: TrainData
    test: Dataset | None
    description: str
    assumed: bool = False


DataLoader: TypeAlias = Callable[[Path | None], DataBundle]
"""A user's own data: called with --data-dir, or None."""


class Model(Protocol):
    """A model to be trained. `optional` has what one may have beyond this.

    `variables` are all the tensors that workers share; the names, without ":0", are the names on the wire and
    must differ. By how much `losses` changes one that is not trainable (batch-norm statistics) is shared too, if it is
    of floating point: such changes are averaged in a synchronous round and added otherwise. Others that are not
    trainable (integers, truth values) keep their initial values: what a step assigns to them is gone with the step.
    """

    @property
    def name(self) -> str:
        """For people."""

    @property
    def variables(self) -> Sequence[tf.Variable]:
        """Trainable or not, in any order."""

    @property
    def defaults(self) -> ModelDefaults:
        """See `ModelDefaults`."""

    @property
    def shown(self) -> tuple[str, ...]:
        """Names of variables of one element whose values the progress line shows."""

    @property
    def data(self) -> str | DataLoader:
        """The default data set: a name of `grpc_ps.models.datasets`, or the model's own loader."""

    def initialize(self, seed: int) -> None:
        """Sets every variable to its first value, which depends on the seed alone."""

    def losses(self, features: tf.Tensor, labels: tf.Tensor) -> tf.Tensor:
        """The loss of each example, shape [batch], as in training. The framework takes the mean."""

    def metrics(self, features: tf.Tensor, labels: tf.Tensor) -> Mapping[str, tf.Tensor]:
        """Figures of each example, shape [batch], as in use; changes nothing.

        "accuracy" is 1 where the model is right. The framework takes the means.
        """


@dataclass(frozen=True, kw_only=True)
class Table:
    """A variable [rows, dim] that is too large to move: shards hold its rows, and only those of a batch travel.

    Attributes:
        rows, dim: its extents; elements are float32.
        spread: rows begin with values drawn evenly from -`spread` up to `spread`, by seed, table and row alone.
        lazy: shards hold only rows that were updated.
        push_rows: distinct rows that a batch may have on one shard: memory for them is set aside.
        capacity: rows that one shard may come to hold of a lazy table; zero means all. Beyond it the job ends with exit
            code 2; whoever goes on with it from a checkpoint may have another one.
    """

    rows: int
    dim: int
    spread: float = 0.05
    lazy: bool = False
    push_rows: int = 65536
    capacity: int = 0


class Lookup(Protocol):
    """A table's rows in a step."""

    def lookup(self, ids: tf.Tensor) -> tf.Tensor:
        """The rows of ids of any shape, with one more extent `dim`; all must be among the batch's `table_ids`."""


class TableModel(Protocol):
    """A model with tables: as `Model`, but `losses` and `metrics` take a third argument, and it may have no variables.

    def losses(self, features, labels, rows):
        words = rows["words"].lookup(features)
        ...
    """

    @property
    def tables(self) -> Mapping[str, Table]:
        """By name; none is a variable's too."""

    def table_ids(self, features: Array) -> Mapping[str, Array]:
        """The ids that a batch looks up in each table, whole numbers of any shape; duplicates are fine.

        Called outside the step, before it: a function of the features alone.
        """
