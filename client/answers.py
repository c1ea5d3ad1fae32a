"""Puts the shards' answers together: one answer counts when all shards give it from one position. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from grpc_ps.protos import parameter_server_pb2 as wire

_OUTCOMES: Mapping[int, str] = MappingProxyType(
    {number: name.removeprefix("OUTCOME_") for name, number in wire.Outcome.items() if number}
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What became of a push, and what to do next.

    Attributes:
        outcome: APPLIED, LATE, NON_FINITE or DONE; None if there was no push.
        repeated: whether that outcome was given before, in an answer that did not arrive.
        global_step: updates applied to the model whose parameters came with this.
        staleness: updates between the parameters the push was computed with and its own.
        parameter: the first that is not finite, with NON_FINITE.
        batch: number of the batch to compute next; None when the job is done.
        hint: number that will probably come after it, to prepare that input; None if unknown.
        done: the job has ended, with `exit_code` and `reason` (empty with exit code 0).
        rows: of each table the rows that were wanted for this batch, [n, dim]; None where none were, or in vain. They
            are overwritten by the next release.
    """

    outcome: str | None = None
    repeated: bool = False
    global_step: int = 0
    staleness: int = 0
    parameter: str = ""
    batch: int | None = None
    hint: int | None = None
    done: bool = False
    exit_code: int = 0
    reason: str = ""
    rows: Mapping[str, Any] | None = field(default=None, compare=False, repr=False)


class Answers:
    """Collects what the shards answer to one push (or, with `awaited` 0, to a question alone).

    Parameters of two positions must never be mixed. Whoever reads is told which shard to read next (`lagging`): one
    whose answer is from a lower position than another's, since it will send that one too.
    """

    def __init__(self, shards: int, awaited: int) -> None:
        self._awaited = awaited
        self._answers: list[wire.Answer | None] = [None] * shards
        self._result: wire.PushResult | None = None

    @property
    def decided(self) -> bool:
        """Whether the outcome of the push is known: it need not be sent again."""
        return self._result is not None

    def restart(self) -> None:
        """Drops the answers, for their streams are gone; an outcome that is known stays known."""
        self._answers = [None] * len(self._answers)

    def lagging(self) -> int:
        """Returns a shard that has to be read next."""
        positions = [answer.position if answer else 0 for answer in self._answers]
        return positions.index(min(positions))

    def add(self, shard: int, answer: wire.Answer) -> Reply | None:
        """Takes a shard's next answer. Returns the reply when it is complete; None asks for more reading."""
        self._answers[shard] = answer
        self._note(answer)
        if answer.HasField("done"):
            # Nothing follows, and the other shards may be gone already.
            return self._reply(answer)
        if any(other is None or other.position != answer.position for other in self._answers):
            return None
        if answer.HasField("release") and (self._result is not None or not self._awaited):
            return self._reply(answer)
        self._answers = [None] * len(self._answers)
        return None

    def overtaken(self, end: Reply) -> Reply:
        """Returns the end of the job, which came another way than as an answer, with what became of the push."""
        return replace(end, outcome=self._outcome(overtaken=True))

    def _outcome(self, *, overtaken: bool) -> str | None:
        """The outcome; a push that the end of the job overtakes before it has one is not applied any more."""
        if self._result is None:
            return "DONE" if overtaken and self._awaited else None
        return _OUTCOMES.get(self._result.outcome)

    def _note(self, answer: wire.Answer) -> None:
        """Keeps the outcome that is awaited. One of an earlier push repeats what is known already."""
        if self._result is None and answer.HasField("result") and answer.result.sequence == self._awaited:
            self._result = answer.result

    def _reply(self, answer: wire.Answer) -> Reply:
        result = self._result or wire.PushResult()
        release = answer.release if answer.HasField("release") else None
        return Reply(
            outcome=self._outcome(overtaken=answer.HasField("done")),
            repeated=result.repeated,
            global_step=answer.global_step,
            staleness=result.staleness,
            parameter=result.parameter,
            batch=release.batch if release else None,
            hint=release.hint or None if release else None,
            done=answer.HasField("done"),
            exit_code=answer.done.exit_code,
            reason=answer.done.reason,
        )
