"""What the shards of a local cluster carried out: the truth that tests compare with, and events to wait for."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from grpc_ps.psserver.lead.log import Answer, Apply, Entry, Open, PushId
from grpc_ps.psserver.server import ShardServer

DEADLINE = 60.0


@dataclass(frozen=True)
class Used:
    """A push that was applied, as one shard held it."""

    push: PushId
    base_step: int
    batch: int
    examples: int
    weight: float


@dataclass(frozen=True)
class Update:
    """One update of one shard; `position` is its place in the log, `images` the pushes' bytes on that shard.

    Incarnations and positions begin anew in each `generation`.
    """

    generation: int
    position: int
    step: int
    pushes: tuple[Used, ...]
    images: tuple[bytes, ...] = field(default=(), compare=False, repr=False)


Hook = Callable[[int, Entry], None]


class History:
    """Watches shards carry out their log. `news` guards the lists; hooks run on the cluster's loop.

    Attributes:
        entries: for each shard what it carried out, with positions.
        updates: for each shard its updates; those that a rollback has undone are gone.
        hooks: called with the shard and each entry, before it is carried out.
        keep_images: whether updates keep the bytes of their pushes.
    """

    def __init__(self) -> None:
        self.entries: list[list[tuple[int, Entry]]] = []
        self.updates: list[list[Update]] = []
        self.hooks: list[Hook] = []
        self.keep_images = False
        self.news = threading.Condition()

    def watch(self, server: ShardServer) -> None:
        """Begins with a shard that has not started, or goes on with one that is started again."""
        replay: Any = server._replay
        shard, carry_out = server.config.shard, replay._carry_out
        if shard == len(self.entries):
            self.entries.append([])
            self.updates.append([])

        def noted(entry: Entry) -> None:
            for hook in self.hooks:
                hook(shard, entry)
            with self.news:
                self.entries[shard].append((replay.position, entry))
                if isinstance(entry, Open):
                    self.updates[shard] = [update for update in self.updates[shard] if update.step <= entry.step]
                if isinstance(entry, Apply):
                    self.updates[shard].append(self._update(replay, entry))
                self.news.notify_all()
            carry_out(entry)

        replay._carry_out = noted

    def _update(self, replay: Any, entry: Apply) -> Update:
        used, images = [], []
        for push, weight in entry.pushes:
            part = replay.staging.whole((push.worker, push.incarnation, push.sequence))
            header = part.header
            used.append(Used(push, header.base_step, header.batch, header.examples, float(np.float32(weight))))
            if self.keep_images:
                images.append(part.image.buffer.tobytes())
        return Update(replay.identity.generation, replay.position, entry.step, tuple(used), tuple(images))

    def until(self, condition: Callable[[], bool], seconds: float = DEADLINE) -> None:
        """Waits until what was carried out makes the condition true; it is asked again after each entry."""
        with self.news:
            assert self.news.wait_for(condition, seconds), f"not within {seconds:g} s, step {self.step}"

    def until_step(self, step: int, seconds: float = DEADLINE) -> None:
        """Waits until shard 0 applies the update to `step`."""
        self.until(lambda: self.step >= step, seconds)

    @property
    def step(self) -> int:
        """The global step as shard 0 has it."""
        # Looked up once: a rollback puts another list in its place.
        first = self.updates[0] if self.updates else []
        return first[-1].step if first else 0

    def of(self, kind: type[Any], shard: int = 0) -> list[Any]:
        """The entries of one kind, in order."""
        with self.news:
            return [entry for _, entry in self.entries[shard] if isinstance(entry, kind)]

    def applied_batches(self) -> list[int]:
        """Numbers of the batches that were applied, in order."""
        return [used.batch for update in self.updates[0] for used in update.pushes]

    def outcomes(self) -> dict[int, Counter[str]]:
        """What became of the pushes of each worker index, repetitions left out."""
        results: dict[tuple[int, int, int], str] = {}
        for answer in self.of(Answer):
            if answer.result is not None:
                key = answer.worker, answer.incarnation, answer.result.sequence
                assert results.setdefault(key, answer.result.outcome) == answer.result.outcome, key
        counted: dict[int, Counter[str]] = {}
        for (worker, _, _), outcome in results.items():
            counted.setdefault(worker, Counter())[outcome] += 1
        return counted

    def check(self) -> None:
        """What holds in every job: one order of updates everywhere, steps one by one, nothing used twice."""
        with self.news:
            first = self.updates[0]
            for other in self.updates[1:]:
                assert other == first[: len(other)], "shards applied different updates"
            assert [update.step for update in first] == list(range(1, len(first) + 1))
            pushes = [(update.generation, used.push) for update in first for used in update.pushes]
        assert len(set(pushes)) == len(pushes), "a push was applied twice"
        batches = self.applied_batches()
        assert len(set(batches)) == len(batches), "a batch was used twice"

    def check_rounds_after(self, step: int, quorum: int) -> None:
        """The same for a job that began at a checkpoint of that step."""
        for other in self.updates:
            assert other == self.updates[0][: len(other)], "shards applied different updates"
        assert [update.step for update in self.updates[0]] == list(range(step + 1, self.step + 1))
        for update in self.updates[0]:
            assert {used.base_step for used in update.pushes} == {update.step - 1}, update
            assert len({used.push.worker for used in update.pushes}) == len(update.pushes) == quorum, update

    def check_rounds(self, quorum: Callable[[Update], int]) -> None:
        """What holds in sync besides: exactly so many gradients, of different workers, of the current step."""
        self.check()
        for update in self.updates[0]:
            assert len(update.pushes) == quorum(update), update
            assert len({used.push.worker for used in update.pushes}) == len(update.pushes), update
            assert {used.base_step for used in update.pushes} == {update.step - 1}, update
            assert [used.batch for used in update.pushes] == sorted(used.batch for used in update.pushes), update

    def wait_equal(self, seconds: float = DEADLINE) -> None:
        """Waits until every shard has carried out what shard 0 has."""
        self.until(lambda: len({len(entries) for entries in self.entries}) == 1, seconds)


def wait_for(condition: Callable[[], bool], what: str, seconds: float = DEADLINE) -> None:
    """Waits for something that tells nobody when it comes."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"{what}: not within {seconds:g} s"
        time.sleep(0.005)
