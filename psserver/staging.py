"""Pushes on their way in: nothing is visible before it is whole, and no message takes memory."""

from __future__ import annotations

from grpc_ps.client.shared.errors import Full, InvalidPush, Mismatch
from grpc_ps.client.shared.image import aligned_buffer
from grpc_ps.protos.coordination_pb2 import Whole
from grpc_ps.protos.parameter_server_pb2 import PushHeader
from grpc_ps.psserver.lead.log import PushId
from grpc_ps.psserver.part import Image, Part
from grpc_ps.psserver.plan import Plan
from grpc_ps.psserver.tail import Tail
from grpc_ps.psserver.unpacking import unpacking

Key = tuple[int, int, int]


def key_of(header: PushHeader) -> Key:
    """Names a push: worker, incarnation, sequence."""
    return header.id.worker, header.id.incarnation, header.sequence


def key_of_id(push: PushId) -> Key:
    """The same for a push as the log names it."""
    return push.worker, push.incarnation, push.sequence


class _Place:
    """The memory of one life of a worker, made once, and the part in it.

    Attributes:
        gradients: the image that its pushes are written to.
        values: over the same memory, the image of the initial values, for a life that opens the job.
        holder: the stream that may fill it; None where there is only a whole part to keep.
    """

    def __init__(self, plan: Plan, opening: bool) -> None:
        self.plan = plan
        size = max(plan.gradients.total_bytes, plan.values.total_bytes if opening else 0)
        self.buffer = aligned_buffer(size)
        memory = self.buffer[: plan.gradients.total_bytes]
        unpack = unpacking(plan.blocks, plan.push, plan.gradients, memory)
        self.tail = Tail(plan.tables) if plan.tables.specs else None
        self.gradients = Image(
            plan.gradients, memory, plan.squared, unpack, self.tail, sums_rows=bool(self.tail) and plan.clips_norm
        )
        self.values = Image(plan.values, self.buffer[: plan.values.total_bytes]) if opening else None
        self.part: Part | None = None
        self.holder: object = None

    @property
    def nbytes(self) -> int:
        """Bytes of its memory."""
        return len(self.buffer) + (len(self.tail.buffer) if self.tail is not None else 0)

    def fits(self, plan: Plan, opening: bool) -> bool:
        """Whether the memory is what that plan asks for."""
        return self.plan.job == plan.job and (self.values is not None or not opening)

    def begin(self, header: PushHeader, chunk_bytes: int) -> Part:
        """Makes the part that the header begins."""
        if header.kind == PushHeader.KIND_GRADIENTS:
            return Part(header, self.gradients, chunk_bytes)
        if self.values is None:
            raise InvalidPush(f"push {header.sequence} of worker {header.id.worker}: only the opener sends values")
        return Part(header, self.values, chunk_bytes)

    def clear(self) -> None:
        """Drops the part."""
        if self.part is not None:
            self.part.dropped = True
            self.part = None

    @property
    def whole(self) -> Part | None:
        """The part, if it is whole."""
        return self.part if self.part is not None and self.part.whole is not None else None


class Staging:
    """The parts of all workers, one a life. Not guarded: used by the event loop alone.

    Memory is taken when a stream attaches and given back when it has ended and what it brought is decided; no message
    takes any. A push that an entry has named stays known as decided, so that one sent again over a new stream, or one
    whose rest is still coming, is not taken anew.
    """

    def __init__(self, chunk_bytes: int) -> None:
        self._chunk_bytes = chunk_bytes
        self._places: dict[tuple[int, int], _Place] = {}
        self._decided: dict[int, tuple[int, int]] = {}

    def attach(self, worker: int, incarnation: int, plan: Plan, holder: object, *, opening: bool = False) -> None:
        """Gives that life its place, which `holder` fills from now on; what an older stream left unfinished is dropped.

        Args:
            opening: it opens the job, so there must be room for all values.

        Raises:
            Full: there is not so much memory.
            Mismatch: a push is whole here that was for another plan.
        """
        life = worker, incarnation
        place = self._places.get(life)
        if place is not None and not place.fits(plan, opening):
            if place.whole is not None:
                raise Mismatch(f"`attach` gives another job than the one {place.part} was for")
            place.clear()
            del self._places[life]
            place = None
        if place is None:
            try:
                place = self._places[life] = _Place(plan, opening)
            except MemoryError:
                nbytes = plan.gradients.total_bytes + plan.tables.push_bytes()
                raise Full(f"no memory for the pushes of worker {worker}: {nbytes} bytes") from None
        elif place.whole is None:
            place.clear()
        place.holder = holder

    def detach(self, worker: int, incarnation: int, holder: object) -> None:
        """The stream has ended: frees its place, unless another one has taken it over or a whole part is in it."""
        place = self._places.get((worker, incarnation))
        if place is not None and place.holder is holder:
            self._let_go((worker, incarnation), place)

    def _let_go(self, life: tuple[int, int], place: _Place) -> None:
        place.holder = None
        if place.whole is None:
            place.clear()
            del self._places[life]

    def begin(self, header: PushHeader) -> Part | None:
        """Begins a push in its worker's place; None if this very push is here whole already, or decided.

        Raises:
            InvalidPush: if the length is not the image's, the number does not follow the last one, or another push of
                that worker is whole and undecided.
        """
        worker, incarnation, sequence = key_of(header)
        if sequence and (incarnation, sequence) <= self._decided.get(worker, (0, 0)):
            return None
        place = self._places[worker, incarnation]
        whole = place.whole
        if whole is not None:
            if key_of(whole.header) == key_of(header):
                return None
            raise InvalidPush(f"{whole} is not decided yet")
        expected = self.held(worker, incarnation) + 1
        if sequence != expected:
            raise InvalidPush(f"push {sequence} of worker {worker}: expected number {expected}")
        part = place.begin(header, self._chunk_bytes)
        if header.total_bytes != part.total_bytes:
            raise InvalidPush(f"{part}: {header.total_bytes} bytes declared, the image has {part.total_bytes}")
        place.clear()
        place.part = part
        return part

    def drop(self, worker: int, incarnation: int) -> None:
        """Drops what that life has begun to push, unless it is here whole."""
        place = self._places.get((worker, incarnation))
        if place is not None and place.whole is None:
            place.clear()

    def whole(self, key: Key) -> Part | None:
        """The part of that push, if it is here whole."""
        place = self._places.get(key[:2])
        part = place.whole if place else None
        return part if part is not None and part.header.sequence == key[2] else None

    def image(self, push: PushId) -> Image:
        """What a push that the log names has brought. LookupError if it is not here whole."""
        part = self.whole(key_of_id(push))
        if part is None:
            raise LookupError(f"push {push} is named by the log and not here")
        return part.image

    def held(self, worker: int, incarnation: int) -> int:
        """Sequence of the last push of that life that is here whole, or decided; 0 if none."""
        place = self._places.get((worker, incarnation))
        if place is not None and place.whole is not None:
            return place.whole.header.sequence
        last_life, sequence = self._decided.get(worker, (0, 0))
        return sequence if last_life == incarnation else 0

    def all_whole(self) -> list[Whole]:
        """Every part that is here whole."""
        parts = (place.part for place in self._places.values())
        return [part.whole for part in parts if part is not None and part.whole is not None]

    def dismiss(self, worker: int, incarnation: int, keep: int = 0) -> None:
        """That life is over: drops what it pushed and frees its memory, but for push `keep` until that is decided."""
        life = worker, incarnation
        place = self._places.get(life)
        if place is None:
            return
        if not keep or self.whole((*life, keep)) is None:
            place.clear()
        self._let_go(life, place)

    def forget(self, key: Key) -> None:
        """Notes that an entry has named a push: it is dropped, whole or not, and none of it is taken any more."""
        worker, incarnation, sequence = key
        self._decided[worker] = max(self._decided.get(worker, (0, 0)), (incarnation, sequence))
        place = self._places.get((worker, incarnation))
        if place is None or place.part is None or place.part.header.sequence > sequence:
            return
        place.clear()
        if place.holder is None:
            del self._places[worker, incarnation]

    def bytes(self) -> int:
        """Memory of all places."""
        return sum(place.nbytes for place in self._places.values())
