"""Going on with a job that had stopped: what a checkpoint gives back, and what may be otherwise from there on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from grpc_ps.psserver.lead.joining import Definition
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.saving import TrainingState
from grpc_ps.psserver.lead.settings import Settings, Signature, Value, complete
from grpc_ps.psserver.lead.until import parse_until

if TYPE_CHECKING:
    from grpc_ps.psserver.lead.job import Job
    from grpc_ps.psserver.lead.training import Training

RESTATABLE = frozenset(
    (
        "steps",
        "epochs",
        "until",
        "eval_every",
        "mode",
        "workers",
        "backup",
        "min_workers",
        "max_workers",
        "max_staleness",
        "learning_rate",
        "schedule",
        "warmup_steps",
        "threads",
    )
)
"""Settings of the lead alone: whoever goes on with a job may state others. All others are in the state itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Restored:
    """A job as a checkpoint has it.

    Attributes:
        name: the checkpoint's; `run` is the job's id.
        settings, opened: as `Definition`.
        opened_count: initialisations so far.
        age: seconds since it was committed.
        cold: the lead has just started; otherwise it has rolled back, and nothing may be stated anew.
        folder: that of the job's checkpoints, for people.
    """

    name: str
    run: int
    model: str
    parameters: Mapping[str, Signature]
    settings: Settings
    opened: Settings
    opened_count: int
    state: TrainingState
    cold: bool
    age: float = 0.0
    folder: str = ""


def restated(settings: Settings, news: Settings, whose: str) -> dict[str, Value]:
    """The settings with what is stated anew.

    Raises:
        Refusal: CHECKPOINT for a setting that is in the state itself; MISMATCH for values that contradict each other.
    """
    if news.get("initial_values"):
        raise Refusal(
            "CHECKPOINT",
            "the folder of checkpoints has a job that did not begin from that file of weights: give another "
            "--checkpoint-dir, or leave out --init-from to go on with that job",
        )
    for name, value in news.items():
        if name in settings and name not in RESTATABLE:
            raise Refusal(
                "CHECKPOINT",
                f"{name}: {whose} has {value!r}, the checkpoint {settings[name]!r}; to take its weights alone, "
                "export them (psctl export) and begin another job with --init-from",
            )
    return complete({name: value for name, value in news.items() if name in settings}, settings)


def limits_rows(parameters: Mapping[str, Signature]) -> bool:
    """Whether a table has a capacity: who goes on with the job may give it another one, before shards take its rows."""
    return any(it.table is not None and it.table["capacity"] for it in parameters.values())


def with_capacities(parameters: Mapping[str, Signature], theirs: Mapping[str, Signature]) -> dict[str, Signature]:
    """The parameters with the capacities that a worker's tables of those names have; all else stays as it is."""
    return {name: _with_capacity(it, theirs.get(name)) for name, it in parameters.items()}


def _with_capacity(ours: Signature, theirs: Signature | None) -> Signature:
    if ours.table is None or theirs is None or theirs.table is None:
        return ours
    return replace(ours, table={**ours.table, "capacity": theirs.table["capacity"]})


def begin_restored(job: Job, restored: Restored) -> None:
    """Defines a job as a checkpoint has it. A lead that has just started waits for workers as for the first time."""
    job.definition = Definition(
        model=restored.model,
        settings=dict(restored.settings),
        parameters=restored.parameters,
        opened=restored.opened,
        folder=restored.folder,
    )
    job.evaluation.until = parse_until(str(restored.settings["until"]))
    state = replace(restored.state, started=False) if restored.cold else restored.state
    job.training = job.new_training(restored.settings, state)


def gone_back_to(restored: Restored, before: Restored | None) -> Restored:
    """A checkpoint to go back to; if the job began from that one before, with what was stated anew then."""
    if before is None or before.state.step != restored.state.step:
        return restored
    return replace(restored, settings=before.settings, opened=before.opened, parameters=before.parameters)


def restarted(job: Job, settings: dict[str, Value]) -> Training | None:
    """Defines the job anew with other settings. Returns its training from where it is; None if that would be over."""
    if job.definition is None or job.training is None:
        return None
    again = job.new_training(settings, job.training.state())
    if job.done is not None and again.is_over():
        return None
    again.take_over(job.training, undecided=job.done is None)
    job.definition.settings = settings
    job.evaluation.until = parse_until(str(settings["until"]))
    return again
