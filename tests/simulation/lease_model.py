"""A worker's place in the job: how `client.joining` asks for it and `client.heartbeat` keeps it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simulation.scenario import RUN
from simulation.violation import Violation

from grpc_ps.psserver.lead.joining import JoinReply, JoinRequest
from grpc_ps.psserver.lead.log import Done
from grpc_ps.psserver.lead.refusal import Refusal
from grpc_ps.psserver.lead.settings import Signature

if TYPE_CHECKING:
    from simulation.worker_model import Worker
    from simulation.world import World

GRACE = 1.0
ASK_AGAIN = 0.4
BEATS_PER_LEASE = 4
PARAMETERS = {"w": Signature("w", (), "float32", True)}


class Lease:
    """Joins with one nonce until there is an answer, then beats until the membership or the process has ended."""

    def __init__(self, world: World, worker: Worker) -> None:
        self.world = world
        self.worker = worker
        self._era = worker.era

    def join(self) -> None:
        """Asks for a place."""
        if not self.worker.asleep(self.join):
            self.world.call(self.worker, self.world.lead.join, (self._request(),), self._joined)

    def _request(self) -> JoinRequest:
        worker = self.worker
        return JoinRequest(
            nonce=worker.nonce,
            name=f"process-{worker.nonce}",
            index=worker.index,
            run=worker.run,
            shard_count=self.world.scenario.shards,
            model="linear",
            parameters=PARAMETERS,
            stated={},
            defaults={},
        )

    def _joined(self, answer: tuple[JoinReply | Refusal, int] | None) -> None:
        worker = self.worker
        if worker.asleep(self._joined, answer) or self._era.cut:
            return
        reply, generation = answer or (None, 0)
        if isinstance(reply, Refusal):
            if reply.reason not in ("FENCED", "FULL", "MISMATCH"):
                raise Violation("refused", f"an honest newcomer is refused: {reply}")
            self.world.checker.seen[f"join refused {reply.reason}"] += 1
            worker.end(4, "refused")
        elif reply is None or reply.state == "WAITING":
            self.world.agenda.enter(self.world.agenda.now + ASK_AGAIN, self._era, self.join)
        elif reply.state == "DONE":
            worker.end(0, "late")
        else:
            assert reply.member is not None
            worker.worker, worker.incarnation = reply.member.worker, reply.member.incarnation
            worker.run = RUN
            worker.generation, worker.checker = generation, self.world.checkers[generation]
            worker.opener = reply.state == "OPENER"
            self._beat()
            worker.attach()

    def _beat(self) -> None:
        worker = self.worker
        if worker.asleep(self._beat) or self._era.cut:
            return
        world, agenda = self.world, self.world.agenda
        world.call(worker, world.lead.beat, (worker.generation, worker.worker, worker.incarnation), self._beaten)
        agenda.enter(agenda.now + world.limits.lease / BEATS_PER_LEASE, self._era, self._beat)

    def _beaten(self, reply: Done | Refusal | None) -> None:
        if self.worker.asleep(self._beaten, reply) or self._era.cut:
            return
        if isinstance(reply, Refusal):
            self.worker.fenced() if reply.reason == "FENCED" else self.worker.rolled_back()
        elif reply is not None:  # an answer of the end that is under way comes first
            self.world.agenda.after(GRACE, self._told, reply)

    def _told(self, done: Done) -> None:
        if not self.worker.asleep(self._told, done) and not self._era.cut:
            self.worker.end(done.exit_code, "done")
