"""A worker process: the real `client.answers`, and a model of how `session.py` and its neighbours use it.

Mirrored: streams to all shards live and end together; after a break all are made again, the worker asks, and sends its
push to those shards that do not hold it whole, unless it knows what became of it; answers are read from whichever shard
lags; a worker that is fenced joins again as a new life; one whose generation is over does so in the same process. Some
compute the gradient of the number that was hinted while a push is exchanged, with the parameters of that push.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

from simulation.breaks import Breaks
from simulation.events import Life
from simulation.lease_model import Lease
from simulation.messages import Header
from simulation.reader_model import read
from simulation.sender_model import Sender
from simulation.sleep import Sleep
from simulation.stream import Stream
from simulation.violation import Violation

from grpc_ps.client.answers import Answers, Reply
from grpc_ps.psserver.lead.log import PushId
from grpc_ps.psserver.lead.parts import Push

if TYPE_CHECKING:
    from simulation.invariants import Checker
    from simulation.world import World

PAUSE = 0.2
RECONNECT = 10.0
NON_FINITE_LIMIT = 5


class Worker:
    """One process from start to end.

    Attributes:
        state: what it does: "joining", "attaching", "waiting", "computing" or "ended".
        since: when it began to wait.
        why: how it ended: "done", "fenced", "crashed", "left", "lost", "refused" or "nan", with `code`.
        recovering: since when it has no streams, None while it has.
        overlaps: whether it computes ahead; then `ahead` is what was released with the parameters of its last push.
        batches: of its own data that are left; None where it has all data.
        generation, checker: of the membership; `era` is its life.
    """

    def __init__(self, world: World, nonce: int, index: int | None, batches: int | None) -> None:
        self.world = world
        self.nonce = nonce
        self.index = index
        self.batches = batches
        self.incarnation = 0
        self.state = "joining"
        self.since = world.agenda.now
        self.worker, self.why, self.code = -1, "", -1
        self.sleep = Sleep(world.agenda)
        self.asleep = self.sleep.asleep
        self.cut_off_until = 0.0
        self.streams: list[Stream] = []
        self.sender = Sender(self)
        self.out, self.run = False, 0
        self.era = Life()
        self._begin_life()

    def _begin_life(self) -> None:
        """Nothing of an earlier membership is left."""
        shards = self.world.scenario.shards
        self.generation, self.incarnation = 0, 0
        self.checker: Checker = self.world.checker
        self.era.cut = True
        self.era = Life()
        self.lease = Lease(self.world, self)
        self.outcomes: Counter[str | None] = Counter()
        self.sequence = self._refused = 0
        self.push: Header | None = None
        self.answers = Answers(shards, 0)
        self.versions, self._boots = [0] * shards, [0] * shards
        self._reply = Reply()
        self.ahead: Reply | None = None
        self.overlaps = self.world.scenario.overlaps and self.nonce % 2 == 0
        self._broken = self.opener = False
        self._fresh = True
        self.sender.stop()
        self.recovering: float | None = None
        self._breaks = Breaks()

    @property
    def ended(self) -> bool:
        """Whether the process is gone."""
        return self.state == "ended"

    def _be(self, state: str) -> None:
        self.state = state
        self.since = self.world.agenda.now

    def attach(self) -> None:
        """Opens a stream to every shard."""
        if self.asleep(self.attach) or not self.incarnation:
            return
        world = self.world
        self._be("attaching")
        self.sender.stop()
        self.streams = [Stream(world, self, shard) for shard in world.shards]
        for stream in self.streams:
            stream.up.send(stream.shard.door.attach, stream)
        if world.cut_off(self):
            self.streams[0].break_()

    def attached(self, stream: Stream, boot: int, held: int) -> None:
        """A shard has taken the stream, and says which push it holds."""
        if self.asleep(self.attached, stream, boot, held) or not stream.open:
            return
        number = stream.shard.number
        if self._boots[number] not in (0, boot):
            self.end(4, "lost")
            self.world.demand_hopeless(f"worker {self.worker} finds another process of shard {number}")
        self._boots[number] = boot
        stream.held = held
        if not self.ended and all(other.held >= 0 for other in self.streams):
            self._resume()

    def _resume(self) -> None:
        self.recovering, self._broken = None, False
        self._breaks.mended(self.world.agenda.now)
        self._be("waiting")
        if self._fresh:
            self._fresh = False
            if self.opener:
                self._send(Push(PushId(self.worker, self.incarnation, 1), 0, 0, 0, values=True), -1)
            else:
                self._ask()
            return
        self.answers.restart()
        self._ask()
        # Repeating is safe: now and then it is done without need.
        again = self.world.draw() < 0.1
        if again:
            self._ask()
        push = self.push
        if push is not None and not self.answers.decided:
            lacking = [stream for stream in self.streams if again or stream.held < push.sequence]
            self.sender.begin(push, lacking)

    def _ask(self) -> None:
        self.streams[0].up.send(self.world.shards[0].ask, self.streams[0], self.sequence, self.out)

    def stream_ended(self, stream: Stream, reason: str) -> None:
        """A stream is gone: all are."""
        if self.asleep(self.stream_ended, stream, reason) or stream not in self.streams:
            return
        if reason == "FENCED":
            self.fenced()
            return
        if reason == "ROLLED_BACK":
            self.rolled_back()
            return
        if reason not in ("LOST", "LEFT"):
            raise Violation("refused", f"worker {self.worker}, which is honest, is refused with {reason}")
        for other in self.streams:
            other.close()
        self.streams = []
        self._broken = True
        if self.state != "computing":
            self._recover()

    def _recover(self) -> None:
        now = self.world.agenda.now
        if self.recovering is None:
            self.recovering = now
            self._breaks.broke(now)
        if self._breaks.too_many:
            self.checker.seen["ten breaks"] += 1
            self.end(4, "unsteady")
            return
        if now - self.recovering > RECONNECT:
            self.end(4, "lost")
            return
        self._be("attaching")
        self.sender.busy = False
        self.world.agenda.enter(now + PAUSE, self.era, self.attach)

    def answered(self, stream: Stream, answer: Any, version: int) -> None:
        """An answer arrives."""
        if self.asleep(self.answered, stream, answer, version) or not stream.open:
            return
        stream.inbox.append((answer, version))
        if self.state == "waiting" and (not self.sender.busy or self.world.scenario.stops_early):
            self.collect()

    def collect(self) -> None:
        """Reads what the shards have answered."""
        if (reply := read(self.answers, self.streams, self.versions)) is not None:
            self._replied(reply)

    def _replied(self, reply: Reply) -> None:
        push, self.push = self.push, None
        self.sender.busy = False
        self._breaks.worked()
        checker = self.checker
        if self.out and not reply.done:  # a release that was under way when the data was used up
            self.collect()
            return
        if push is not None:
            self.outcomes[reply.outcome] += 1
            checker.pushes.told(push.key, reply)
        if reply.done:
            self.end(reply.exit_code, "done")
            return
        checker.released(self, reply)
        if reply.outcome == "LATE":
            self.overlaps, self.ahead = False, None
        self._refused = self._refused + 1 if reply.outcome == "NON_FINITE" else 0
        if self._refused >= NON_FINITE_LIMIT:
            self.end(5, "nan")
            return
        self._reply = reply
        self._be("computing")
        agenda = self.world.agenda
        agenda.enter(agenda.now + self.world.compute_time(self), self.era, self._computed, (self.era,))

    def _computed(self, era: Life) -> None:
        if self.asleep(self._computed, era) or era.cut:
            return
        self._be("waiting")
        if self.batches == 0:
            self.out = True
            self.answers = Answers(len(self.versions), 0)
            if self._broken:
                self._recover()
            else:
                self._ask()
                self.collect()
            return
        if self.batches is not None:
            self.batches -= 1
        reply, world = self._reply, self.world
        assert reply.batch is not None
        base_step = reply.global_step
        if self.ahead is not None and self.ahead.hint == reply.batch:
            base_step = self.ahead.global_step
            self.checker.seen["computed ahead"] += 1
        self.ahead = reply if self.overlaps else None
        name = PushId(self.worker, self.incarnation, self.sequence + 1)
        examples = self.checker.numbers.examples(reply.batch)
        nan = world.nan_chance and world.draw() < world.nan_chance
        nan_on = world.choose(range(len(self.versions))) if nan else -1
        self._send(Push(name, base_step, reply.batch, examples), nan_on)

    def _send(self, push: Push, nan_on: int) -> None:
        self.sequence += 1
        self.answers = Answers(len(self.versions), self.sequence)
        self.push = header = Header(push, nan_on, self.versions[0])
        self.checker.pushes.pushed(header)
        if self._broken:
            self._recover()
        else:
            self.sender.begin(header, self.streams)

    def fenced(self) -> None:
        """The process is told that it is no member any more."""
        self.checker.fenced(self.incarnation)
        self.end(4, "fenced")

    def rolled_back(self) -> None:
        """The process is told that its generation is over: it joins again, and begins anew with what it gets."""
        world = self.world
        world.demand_over(self.generation)
        self.demand_counted()
        self.checker.seen["joined again"] += 1
        for stream in self.streams:
            stream.close()
        self.streams = []
        rest = world.compute_time(self) * world.draw() if self.state == "computing" else 0.0
        self._begin_life()
        self.nonce = world.new_nonce()
        self._be("joining")
        world.agenda.enter(world.agenda.now + rest, self.era, self.lease.join)

    def demand_counted(self) -> None:
        """Its pushes are the sum of their outcomes, but for the one that is under way."""
        if self.sequence != sum(self.outcomes.values()) + (self.push is not None):
            raise Violation("outcome", f"worker {self.worker} sent {self.sequence} pushes: {self.outcomes}")

    def end(self, code: int, why: str) -> None:
        """The process ends."""
        self._be("ended")
        self.sleep.over = True
        self.code, self.why = code, why
        for stream in self.streams:
            if why == "crashed" and self.world.draw() < 0.3:
                stream.up.cut = True
                patience = self.world.draw() * self.world.limits.lease
                self.world.agenda.after(patience, stream.shard.door.stream_ended, stream)
            stream.close()
        if self.incarnation and why not in ("crashed", "fenced"):
            self.world.call(self, self.world.lead.leave, (self.generation, self.worker, self.incarnation), None)
        self.world.process_ended(self)
