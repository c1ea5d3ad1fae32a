"""A shard: the real staging, and a model of how `replay.py`, `training_stream.py` and `link.py` use it.

Mirrored: entries are carried out in order, those behind a running update wait; `open`, `apply` and `reduce` need every
push that they name whole here; an answer forgets the push that it decides, even in the middle of its arrival, and goes
to the stream that is attached; values leave only where a snapshot is; `dismiss` drops what that life pushed, but for
the push that it keeps; a push of a life that the log has ended is refused. `save` has the values of its position
written beside what follows, one after the other. A generation that begins drops all that was before.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from simulation.door_model import Door
from simulation.events import Life
from simulation.invariants import next_history
from simulation.messages import GRADIENTS, IMAGE_BYTES, Header, Whole, square
from simulation.stream import Stream
from simulation.uplink_model import Uplink
from simulation.violation import Violation

from grpc_ps.client.shared.errors import PsError
from grpc_ps.psserver.lead.log import Admit, Answer, Apply, Dismiss, Entry, Open, Pin, PushId, Reduce, Save, Stop
from grpc_ps.psserver.lead.saving import SavedPart
from grpc_ps.psserver.staging import Staging

if TYPE_CHECKING:
    from simulation.invariants import Checker
    from simulation.world import World


class Shard:
    """One shard process. Shard 0 is the lead's: its reports reach the lead at once.

    Attributes:
        life, era: the process's, and that of what it does in this generation.
        part: the newest report of a part of a checkpoint.
        kept: pushes of lives that are over, which a round still has.
        delivered: position of the last entry taken; `position` of the last one carried out.
        version: of the values that are released; None where none may leave. `step` is their global step.
    """

    def __init__(self, world: World, number: int, boot: int) -> None:
        self.world = world
        self.number = number
        self.boot = boot
        self.life = Life()
        self.era = Life()
        self.door = Door(self)
        self.uplink = Uplink(world, self)
        self.begin(0, world.checker)
        self._written_at = 0.0
        self._carry: dict[type, Callable[[Any], None]] = {
            Open: self._open,
            Admit: self._admit,
            Dismiss: self._dismiss,
            Reduce: self._reduce,
            Apply: self._apply,
            Answer: self._answer,
            Pin: self._pin,
            Save: self._save,
            Stop: lambda entry: None,
        }

    def begin(self, generation: int, checker: Checker) -> None:
        """Follows the log of another generation, from its first entry on."""
        self.era.cut = True
        self.era = Life()
        self.generation = generation
        self.checker = checker
        self.staging = Staging(IMAGE_BYTES)
        self.opened = False
        self.admitted: dict[int, int] = {}
        self.delivered = self.position = self.step = self.history = 0
        self.version: int | None = None
        self.reduced: tuple[int, tuple[PushId, ...]] | None = None
        self.part: SavedPart | None = None
        self.uplink.overflowed = None
        self.kept: set[tuple[int, int, int]] = set()
        self._backlog: deque[tuple[int, Entry]] = deque()
        self._busy = False

    def end_generation(self) -> None:
        """Every stream ends: its worker is to join again."""
        self.era.cut = True
        self.door.close()

    def die(self) -> None:
        """The process is gone."""
        self.life.cut = self.era.cut = True
        for worker in self.world.processes:
            for stream in worker.streams:
                if stream.shard is self:
                    stream.die()

    def deliver(self, position: int, entry: Entry) -> None:
        """Takes the next entry of the log."""
        if position != self.delivered + 1:
            raise Violation("order", f"shard {self.number} gets entry {position} after {self.delivered}")
        self.delivered = position
        self._backlog.append((position, entry))
        self._work()

    def _work(self) -> None:
        backlog = self._backlog
        while backlog and not self._busy:
            self.position, entry = backlog.popleft()
            self._carry[type(entry)](entry)

    def _in_kernels(self, then: Callable[..., None], *args: Any) -> None:
        """Runs an update, which may take a time in which entries wait."""
        if not self.world.scenario.kernel:
            then(*args)
            return
        self._busy = True
        agenda = self.world.agenda
        agenda.enter(agenda.now + self.world.draw() * self.world.scenario.kernel, self.era, self._resume, (then, args))

    def _resume(self, then: Callable[..., None], args: tuple[Any, ...]) -> None:
        self._busy = False
        then(*args)
        self._work()

    def _demand_whole(self, pushes: tuple[PushId, ...]) -> None:
        for push in pushes:
            if self.staging.whole((push.worker, push.incarnation, push.sequence)) is None:
                raise Violation("not-whole", f"{push} is named by entry {self.position} and not on shard {self.number}")

    def _forget(self, push: PushId) -> None:
        key = (push.worker, push.incarnation, push.sequence)
        self.staging.forget(key)
        self.kept.discard(key)

    def _open(self, entry: Open) -> None:
        if entry.push is not None:
            self._demand_whole((entry.push,))
        self.opened = True
        self._in_kernels(self._made_store, entry)

    def _made_store(self, entry: Open) -> None:
        if entry.push is not None:
            self._forget(entry.push)
            self.version = self.history = hash(entry.push)
        else:
            self.version = self.history = self.world.disk.checkpoints[entry.checkpoint].parts[self.number]
        self.step = entry.step
        self.checker.carried(self.number, entry.step, self.history)

    def _save(self, entry: Save) -> None:
        """Has this position written beside what follows; the writer does one after the other."""
        if entry.step != self.step:
            raise Violation("saved-state", f"{entry} reaches shard {self.number} at step {self.step}")
        if self.version is None:
            self._saved(SavedPart(folder=entry.folder, error="a number is not finite"))
            return
        agenda = self.world.agenda
        self._written_at = max(self._written_at, agenda.now) + self.world.draw() * self.world.scenario.disk
        agenda.enter(self._written_at, self.life, self._write, (self.era, entry, self.history))

    def _write(self, era: Life, entry: Save, history: int) -> None:
        """The part is written, though its generation may be over: then nobody is told."""
        part = SavedPart(folder=entry.folder, file=f"shard-{self.number}", size=IMAGE_BYTES, sha256=str(history))
        if self.world.disk_fails():
            self.checker.seen["part failed"] += 1
            part = SavedPart(folder=entry.folder, error="no space left")
        else:
            self.world.disk.write(entry.folder, self.number, history)
        if not era.cut:
            self._saved(part)

    def _saved(self, part: SavedPart) -> None:
        self.part = part
        self.uplink.report("saved", part)

    def _admit(self, entry: Admit) -> None:
        self.admitted[entry.worker] = entry.incarnation
        self.door.admit(entry.worker)

    def _dismiss(self, entry: Dismiss) -> None:
        if self.admitted.get(entry.worker) == entry.incarnation:
            del self.admitted[entry.worker]
        self.staging.dismiss(entry.worker, entry.incarnation, entry.keep)
        self.kept = {key for key in self.kept if key[1] != entry.incarnation}
        if entry.keep:
            self.kept.add((entry.worker, entry.incarnation, entry.keep))
        stream = self.door.sessions.get(entry.worker)
        if stream is not None and stream.incarnation == entry.incarnation:
            self.door.refuse(stream, entry.reason or "LEFT")

    def _reduce(self, entry: Reduce) -> None:
        pushes = tuple(push for push, _ in entry.pushes)
        self._demand_whole(pushes)
        if self.reduced is not None:
            raise Violation("reduce", f"a mean of {pushes} is made while that of {self.reduced} waits")
        self._in_kernels(self._made, self.position, pushes)

    def _made(self, position: int, pushes: tuple[PushId, ...]) -> None:
        self.reduced = position, pushes
        self.uplink.report("reduced", position, square(self.number, pushes))

    def _apply(self, entry: Apply) -> None:
        pushes = tuple(push for push, _ in entry.pushes)
        self._demand_whole(pushes)
        if entry.step != self.step + 1:
            raise Violation("step", f"shard {self.number}: step {entry.step} after {self.step}")
        reduced = self.reduced[1] if self.reduced else None
        if reduced != (pushes if entry.scales and len(pushes) > 1 else None):
            raise Violation("reduce", f"{pushes} are applied with {entry.scales}, and {reduced} are reduced")
        self.reduced = None
        self.version = None
        self._in_kernels(self._applied, entry, pushes)

    def _applied(self, entry: Apply, pushes: tuple[PushId, ...]) -> None:
        for push in pushes:
            self._forget(push)
        self.step = entry.step
        self.history = next_history(self.history, entry)
        self.checker.carried(self.number, entry.step, self.history)
        if self.world.overflows(self.number, entry.step):
            self.uplink.overflowed = ("w", entry.step)
            self.uplink.report("overflow", *self.uplink.overflowed)
        else:
            self.version = self.history
        self.world.cut_somebody(self)

    def _answer(self, entry: Answer) -> None:
        stream = self.door.sessions.get(entry.worker)
        if entry.result is not None:
            self.staging.forget((entry.worker, entry.incarnation, entry.result.sequence))
        if stream is None or stream.incarnation != entry.incarnation:
            return
        if entry.release is not None and self.version is None:
            return
        answer = self.world.wire_answer(entry, self.position)
        stream.down.send(stream.worker.answered, stream, answer, self.version)
        if self.world.cut_chance and self.world.draw() < self.world.cut_chance:
            self.checker.seen["cut when answered"] += 1
            stream.break_()

    def _pin(self, entry: Pin) -> None:
        if self.version is not None:
            self.checker.pinned(self.number, entry.snapshot, entry.step, self.version)

    def take(self, stream: Stream, header: Header | None, end: bool) -> None:
        """A message of a push arrives: its beginning has the header."""
        if not stream.served:
            return
        if header is not None and not self._begin(stream, header):
            return
        if stream.part is not None and stream.part.dropped:
            stream.part, stream.skipping = None, True
        if end:
            self._finish(stream)
        world = self.world
        if world.cut_chance and world.draw() < world.cut_chance:
            self.checker.seen["cut when whole" if end else "cut behind the header" if header else "cut half-way"] += 1
            stream.break_()

    def _begin(self, stream: Stream, header: Header) -> bool:
        worker, incarnation, _ = header.key
        if not self._is_member(worker, incarnation):
            self.door.refuse(stream, "FENCED")
            return False
        self._demand_between(stream)
        try:
            stream.part = self.staging.begin(header)  # type: ignore[arg-type]
        except PsError as error:
            raise Violation("refused", f"an honest push is refused: {error}") from error
        stream.skipping = stream.part is None
        self.checker.staged(self)
        if stream.part is not None and self.number == 0 and header.kind == GRADIENTS:
            self.world.lead.begun(header.push)
        return stream.served

    def _is_member(self, worker: int, incarnation: int) -> bool:
        return self.admitted.get(worker) == incarnation

    def _demand_between(self, stream: Stream) -> None:
        if stream.part is not None and not stream.part.dropped:
            raise Violation("refused", f"{stream.part} is not ended before what follows")

    def _finish(self, stream: Stream) -> None:
        if stream.skipping:
            stream.skipping = False
            return
        part, stream.part = stream.part, None
        if part is None:
            raise Violation("refused", f"{stream}: an end without a header")
        header = part.header
        part.whole = Whole(header, "w" if header.nan_on == self.number else "")
        self.checker.pushes.held(self.number, header)
        self.uplink.report("whole", part.whole)

    def ask(self, stream: Stream, sequence: int, out_of_data: bool) -> None:
        """A worker asks; on the lead only."""
        if stream.served:
            self._demand_between(stream)
            self.world.lead.ask(stream.worker.worker, stream.incarnation, sequence, out_of_data)
