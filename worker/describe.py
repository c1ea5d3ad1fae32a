"""What a model has, and how good a cluster's values of it are: for people, and for programs."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from grpc_ps.client import ParameterSpec, PSClient
from grpc_ps.client.shared.errors import Mismatch, UsageError
from grpc_ps.models import Array, FitsData
from grpc_ps.worker.config import WorkerConfig
from grpc_ps.worker.evaluator import Evaluator
from grpc_ps.worker.loading import fit, load_data, model_factory, model_with_data
from grpc_ps.worker.progress import metrics_text
from grpc_ps.worker.tables import dense_specs, model_specs


@dataclass(frozen=True)
class Parameters:
    """The parameters of a model, in its own order."""

    specs: Sequence[ParameterSpec]

    @classmethod
    def of(cls, config: WorkerConfig) -> Parameters:
        """Makes the model and looks at it.

        Raises:
            UsageError: it cannot be made, or not be shared.
        """
        model = model_factory(config.model, config.arguments)()
        if isinstance(model, FitsData):
            fit(model, load_data(model, name=config.data, directory=config.data_dir), name=config.model)
        return cls(model_specs(model))

    def record(self) -> dict[str, object]:
        """For programs."""
        fields = [
            {"name": spec.name, "shape": list(spec.shape), "dtype": spec.dtype, "trainable": spec.trainable}
            | ({"table": asdict(spec.table)} if spec.table is not None else {})
            for spec in self.specs
        ]
        return {"parameters": fields}

    def table(self) -> str:
        """For people: a line each, and what they have together."""
        rows = [
            (
                spec.name,
                spec.dtype,
                str(list(spec.shape)),
                f"{spec.nbytes:,}",
                _kind(spec),
            )
            for spec in self.specs
        ]
        widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [
            f"{name:{widths[0]}}  {dtype:{widths[1]}}  {shape:{widths[2]}}  {size:>{widths[3]}} bytes  {more}".rstrip()
            for name, dtype, shape, size, more in rows
        ]
        total = sum(spec.nbytes for spec in self.specs)
        return "\n".join([*lines, f"{len(rows)} parameters, {total:,} bytes"])


def _kind(spec: ParameterSpec) -> str:
    if spec.table is not None:
        return "lazy table" if spec.table.lazy else "table"
    return "" if spec.trainable else "not trainable"


@dataclass(frozen=True)
class Evaluated:
    """The metrics of a cluster's values after `global_step` updates: means over `examples` of the test set.

    `averages`: whether they are of the moving averages of its parameters.
    """

    global_step: int
    metrics: Mapping[str, float]
    examples: int
    averages: bool = False

    @classmethod
    def of(cls, config: WorkerConfig) -> Evaluated:
        """Reads one snapshot from the cluster, of moving averages where it keeps any, and evaluates the model with it.

        Raises:
            UsageError: the model cannot be made, or its data has no test set.
            DataError: a file is missing or not what it should be.
            Mismatch: the cluster has another model.
            PsError: the cluster cannot be read.
        """
        model, data = model_with_data(config, model_factory(config.model, config.arguments))
        test = data.test
        if test is None:
            raise UsageError(f"--model {config.model}: its data has no test set to evaluate on; choose other data")
        with PSClient(config.addresses, timeout=config.connect_timeout, security=config.security) as client:
            evaluator = Evaluator(model, test, device=config.device)
            pulled = client.pull(averages=not config.raw, rows=evaluator.needed_rows())
        check_same(dense_specs(model_specs(model)), pulled.values)
        metrics = evaluator(pulled.values, pulled.rows)
        return cls(pulled.global_step, metrics, test.examples, pulled.averages)

    def record(self) -> dict[str, object]:
        """For programs. JSON has no NaN, so a metric that is not finite is None."""
        metrics = {name: value if math.isfinite(value) else None for name, value in self.metrics.items()}
        counts = {"global_step": self.global_step, "examples": self.examples}
        return {**counts, "metrics": metrics, "averages": self.averages}

    def line(self) -> str:
        """For people."""
        what = ", moving averages" if self.averages else ""
        return f"global_step {self.global_step}: {metrics_text(self.metrics)} ({self.examples} examples{what})"


def check_same(specs: Sequence[ParameterSpec], values: Mapping[str, Array]) -> None:
    """Refuses values that are not this model's.

    Raises:
        Mismatch: names the first parameter, by name, that differs, and both forms of it.
    """
    ours = {spec.name: f"{spec.dtype}{list(spec.shape)}" for spec in specs}
    theirs = {name: f"{array.dtype.name}{list(array.shape)}" for name, array in values.items()}
    for name in sorted(ours.keys() | theirs.keys()):
        if ours.get(name) != theirs.get(name):
            none = "none of that name"
            raise Mismatch(
                f"parameter {name!r}: the cluster has {theirs.get(name, none)}, this model has {ours.get(name, none)}:"
                " are --model and --model-arg those of the job?"
            )
