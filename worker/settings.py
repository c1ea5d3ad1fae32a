"""The job's settings as a worker has them: what it states, what it would choose, and what it makes of the job's."""

from __future__ import annotations

import re
from collections.abc import Mapping

from grpc_ps.client.shared.errors import UsageError
from grpc_ps.models import ModelDefaults, TrainData
from grpc_ps.worker.config import Value, WorkerConfig

NO_OVERLAP = "--overlap: not for a model with tables, whose rows come with the parameters of a step"


class OtherThreads(Exception):
    """The job computes with another number of threads than this process's TensorFlow, which cannot be changed."""

    def __init__(self, threads: int) -> None:
        super().__init__(f"the job has {threads} threads")
        self.threads = threads


def stated_settings(config: WorkerConfig, train: TrainData) -> dict[str, Value]:
    """What this worker insists on: the user's flags, its data, which is to be the same everywhere, and first values."""
    stated = {**config.stated, "examples": train.examples, "data": train.fingerprint}
    return stated if config.initial is None else {**stated, "initial_values": config.initial.digest}


def default_settings(stated: Mapping[str, Value], defaults: ModelDefaults, *, model: str = "model") -> dict[str, Value]:
    """What this worker would choose. Another end that the user states replaces the model's number of steps.

    `model` is what --model says.

    Raises:
        UsageError: the model's own optimizer is not possible, and none is stated.
    """
    if defaults.unsupported and "optimizer" not in stated:
        raise UsageError(f"--model {model}: {defaults.unsupported}; state one with --optimizer")
    # What a model names itself must not replace what it says here, or the end that the user states.
    hyper = {name: value for name, value in defaults.hyper.items() if name != "steps"}
    chosen: dict[str, Value] = {
        **hyper,
        "optimizer": defaults.optimizer,
        "learning_rate": defaults.learning_rate,
        "batch_size": defaults.batch_size,
    }
    other_end = "epochs" in stated or "until" in stated
    return chosen if other_end else {**chosen, "steps": defaults.steps}


def target_step(settings: Mapping[str, Value]) -> int:
    """The job's last global step as far as its settings tell; zero if they do not.

    It is where steps or epochs end, whichever comes first. Workers that are lost, and changes while the job runs, may
    move it.
    """
    steps, epochs = int(settings.get("steps", 0)), int(settings.get("epochs", 0))
    if not epochs:
        return steps
    updates = _updates(settings, epochs)
    return min(steps, updates) if steps else updates


def _updates(settings: Mapping[str, Value], epochs: int) -> int:
    """Updates that so many epochs make. In a round several batches make one, without backup workers of one epoch."""
    batches = -(-int(settings["examples"]) // int(settings["batch_size"]))
    if settings["mode"] != "sync":
        return batches * epochs
    workers = int(settings["workers"])
    return -(-batches * epochs // workers) if int(settings["backup"]) else -(-batches // workers) * epochs


def until_metric(settings: Mapping[str, Value]) -> str | None:
    """The metric of an evaluation that is to end the job; None if none is."""
    found = re.match(r"\w+", str(settings.get("until", "")))
    return found[0] if found else None
