"""The training loop: parameters and a batch number in, gradients out, until the job is done."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

import tensorflow as tf

from grpc_ps.client import Reply, TrainingSession
from grpc_ps.client.shared.errors import JobFailed, NonFinite
from grpc_ps.client.shared.logs import event
from grpc_ps.models import Array, Model
from grpc_ps.worker.data import Feed
from grpc_ps.worker.gradients import ComputeStep, Gradients
from grpc_ps.worker.progress import Progress
from grpc_ps.worker.table_gradients import TableGradients
from grpc_ps.worker.table_step import TableStep
from grpc_ps.worker.variables import Variables

_LOGGER = logging.getLogger("grpc_ps.worker")

NON_FINITE_LIMIT = 5
"""Refused pushes in a row after which a worker gives up: its model or data is broken."""


@dataclass(frozen=True, slots=True)
class Trained:
    """A step that was answered: the mean loss of its examples, and what became of it.

    The loss is None where nothing was computed: when the worker has just joined, or has no data left.
    """

    reply: Reply
    loss: tf.Tensor | None = None
    examples: int = 0


class Trainer:
    """Trains a model through sessions, one after the other if the worker has to join again.

    Args:
        model: the one that `step` computes with.
        step: as `step.Step`, or `table_step.TableStep` for a model with tables.
        progress: counts and prints; counts go on from session to session.
        overlap: compute the next gradient while a push is exchanged, where the mode takes gradients of older steps.
        evaluate: called with the global step after each step while this worker is the one to evaluate.
        observe: told each answer with the loss of the step.
        at: called at the points where `--fault` may kill the process.
    """

    def __init__(
        self,
        model: Model,
        step: ComputeStep | TableStep,
        progress: Progress,
        *,
        overlap: bool = False,
        evaluate: Callable[[int], None] = lambda _: None,
        observe: Callable[[Reply, tf.Tensor], None] = lambda reply, loss: None,
        at: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._model = model
        self._step = step
        self._progress = progress
        self._overlap = overlap
        self._evaluate = evaluate
        self._observe = observe
        self._at = at
        self._refused = 0
        # Of the last push that was applied, and the step that it made.
        self._loss: tf.Tensor | None = None
        self._applied_step: int | None = None

    def steps(self, session: TrainingSession, feed: Feed, *, target: int) -> Iterator[Trained]:
        """Trains until the job is done; the first step is the answer with the first parameters, without a loss.

        The parameters are those of the yielded reply until the next step is asked for. `target` is the last global step
        of the job, zero if not known.

        Raises:
            JobFailed: the job ended for another reason than that it is done.
            NonFinite: `NON_FINITE_LIMIT` pushes in a row were refused.
            PsError: whatever the session raises.
        """
        reply = session.begin()
        self._progress.begin(session.worker, reply.global_step, target)
        if self._applied_step is not None and reply.global_step < self._applied_step:
            # The job has gone back to before that push.
            self._loss = self._applied_step = None
        # No parameters have come with the end of a job: then the model's variables stay as they are.
        gradients = None if reply.done else self._gradients(session, feed)
        yield Trained(reply)
        while gradients is not None and not reply.done:
            step = self._one_step(session, gradients, reply)
            reply = step.reply
            yield step
        self._end(session, reply)

    def _end(self, session: TrainingSession, reply: Reply) -> None:
        self._progress.global_step = max(reply.global_step, self._progress.global_step)
        self._progress.loss = None if self._loss is None else float(self._loss)
        self._progress.applied_step = self._applied_step
        session.note(self._progress.local_steps, self._progress.loss)
        session.tell()
        if reply.exit_code:
            raise JobFailed(reply.reason, exit_code=reply.exit_code)
        self._progress.ended = reply.reason
        self._progress.shown = self.shown(session.parameters)

    def _gradients(self, session: TrainingSession, feed: Feed) -> Gradients | TableGradients:
        parameters = session.parameters
        variables = Variables(self._model.variables, parameters)
        if isinstance(self._step, TableStep):
            return TableGradients(self._model, self._step, variables, session, feed, lap=session.times.lap)
        overlap = self._overlap and session.settings.get("mode") == "async"
        lap, send = session.times.lap, session.send
        return Gradients(self._step, variables, parameters, feed, overlap=overlap, lap=lap, send=send)

    def _one_step(self, session: TrainingSession, gradients: Gradients | TableGradients, reply: Reply) -> Trained:
        session.times.skip()
        reply = gradients.ready(reply)
        if reply.done:
            return Trained(reply)
        assert reply.batch is not None, "a release has parameters and a batch number together"
        computed = gradients.due(reply.batch, reply.global_step)
        if computed is None:
            event(_LOGGER, "out_of_data", local_step=self._progress.local_steps, waiting="for the end of the job")
            return Trained(session.finish())
        self._at("computed")
        gradients.send(computed, reply.hint)
        self._at("sent")
        gradients.look_ahead(reply.hint, reply.global_step)
        reply = session.wait()
        self._at("answered")
        if self._progress.step(reply.global_step, reply.outcome, computed.batch.examples):
            self._progress.show(computed.loss, self.shown(session.parameters))
        if reply.outcome == "APPLIED":
            self._loss, self._applied_step = computed.loss, computed.base_step + reply.staleness + 1
        self._observe(reply, computed.loss)
        if reply.outcome == "LATE" and gradients.overlaps:
            # The job was set to another mode, which takes gradients of its present step alone.
            gradients.overlaps = False
            event(_LOGGER, "overlap_ended", global_step=reply.global_step, why="a push was late: the job is in rounds")
        self._account(session, reply)
        return Trained(reply, computed.loss, computed.batch.examples)

    def _account(self, session: TrainingSession, reply: Reply) -> None:
        progress = self._progress
        session.note(progress.local_steps, self._loss)
        if session.evaluator:
            self._evaluate(reply.global_step)
        self._refused = self._refused + 1 if reply.outcome == "NON_FINITE" else 0
        if self._refused >= NON_FINITE_LIMIT:
            where = f"parameter {reply.parameter!r}" if reply.parameter else "the gradients"
            raise NonFinite(
                f"{self._refused} pushes in a row had NaN or infinity in {where} at global step {reply.global_step}:"
                " lower --learning-rate, or check the data"
            )

    def shown(self, parameters: Mapping[str, Array]) -> dict[str, float]:
        """The values of the variables that the model shows."""
        return {name: float(parameters[name].reshape(-1)[0]) for name in self._model.shown}
