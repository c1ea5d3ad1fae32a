"""What workers keep back of their pushes: fetched for a checkpoint, and given back to those who go on from one."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from grpc_ps.client.shared.checkpoint_format import Piece, residual_slot
from grpc_ps.client.shared.errors import InvalidPush
from grpc_ps.client.shared.image import Bytes, Layout
from grpc_ps.client.shared.logs import event
from grpc_ps.protos.parameter_server_pb2 import Answer, PushHeader, ResidualRequest
from grpc_ps.psserver.residual_part import ResidualPart

logger = logging.getLogger(__name__)

Kept: TypeAlias = Sequence[tuple[Piece, memoryview]]
Ask: TypeAlias = Callable[[int, int, Answer], None]


@dataclass
class _Gathering:
    """What is fetched for one checkpoint: of `lives`, with their last applied pushes; `missing` have not answered.

    `begun` and `until` are times of the event loop: of the request, and of the end of all patience.
    """

    position: int
    step: int
    lives: Mapping[int, tuple[int, int]]
    then: Callable[[Kept], None]
    missing: dict[int, int]
    kept: dict[int, Bytes]
    begun: float
    until: float
    timer: asyncio.TimerHandle | None = None
    parts: dict[int, ResidualPart] = field(default_factory=dict)


class Residuals:
    """Knows who keeps something back. Not guarded: used by the event loop alone.

    A worker of which a push has been decided is asked; one without keeps back what it got from here, so that is taken.
    """

    def __init__(self) -> None:
        self._deadline = math.inf
        self._gathering: _Gathering | None = None
        self._layout: Layout | None = None
        self.clear()

    def clear(self) -> bool:
        """Forgets everything: another generation begins. Returns whether a checkpoint was waiting."""
        waited = self._stop() is not None
        self._layout = None
        self._last: _Gathering | None = None
        self._opening: tuple[int, int, int] | None = None
        self._lives: dict[int, tuple[int, int]] = {}
        self._restored: dict[int, Bytes] = {}
        self._present: dict[int, int] = {}
        self._dismissed: dict[int, int] = {}
        self._saves: list[int] = []
        return waited

    def _stop(self) -> _Gathering | None:
        gathering, self._gathering = self._gathering, None
        if gathering is not None:
            if gathering.timer is not None:
                gathering.timer.cancel()
            for part in gathering.parts.values():
                part.dropped = True
        return gathering

    def open(
        self,
        layout: Layout | None,
        restored: Mapping[int, Bytes],
        opening: tuple[int, int, int] | None = None,
        *,
        places: int,
    ) -> None:
        """Begins with a job.

        Args:
            layout: of what is kept back; None if pushes are exact.
            restored: what workers kept back, by index.
            opening: the push with the first values, which leaves nothing.
            places: how many indices workers may have; what was restored of others is dropped.
        """
        self._layout, self._restored, self._opening = layout, dict(restored), opening
        self._drop([worker for worker in restored if worker >= places], "the job has no such worker")

    def admit(self, worker: int, incarnation: int) -> None:
        """A life has begun: it will want what was restored of its index."""
        self._present[worker] = incarnation

    def saving(self, step: int) -> None:
        """A checkpoint of that step is due. By the second one since the job began, whoever was to come has come."""
        # An attempt that is made again is no other checkpoint.
        if self._saves[-1:] != [step]:
            self._saves = [*self._saves[-1:], step]
        if len(self._saves) > 1:
            self._drop([worker for worker in self._restored if worker not in self._present], "nobody came for it")

    def _drop(self, workers: Sequence[int], why: str) -> None:
        for worker in workers:
            del self._restored[worker]
        if workers:
            event(logger, "residuals_dropped", workers=_names(workers), why=why)

    def decided(self, worker: int, incarnation: int, sequence: int, *, applied: bool) -> None:
        """An entry has decided a push."""
        if self._layout is None or (worker, incarnation, sequence) == self._opening:
            return
        self._restored.pop(worker, None)
        if incarnation <= self._dismissed.get(worker, 0):
            # Its last push counts, and nobody is there any more who could be asked.
            return
        life, last = self._lives.get(worker, (0, 0))
        last = last if life == incarnation else 0
        self._lives[worker] = incarnation, sequence if applied else last

    def dismiss(self, worker: int, incarnation: int) -> None:
        """That life is over, for good, and what it kept back is lost."""
        self._dismissed[worker] = max(self._dismissed.get(worker, 0), incarnation)
        if self._present.get(worker) == incarnation:
            del self._present[worker]
        if self._lives.get(worker, (0, 0))[0] == incarnation:
            del self._lives[worker]
        gathering = self._gathering
        if gathering is not None and gathering.missing.get(worker) == incarnation:
            self._without(gathering, worker)

    def restored(self, worker: int) -> tuple[Layout, Bytes] | None:
        """What a new life of that index has to be given."""
        buffer = self._restored.get(worker)
        return None if buffer is None or self._layout is None else (self._layout, buffer)

    def request(self, worker: int, incarnation: int) -> Answer | None:
        """The last request to that life, to be repeated on another stream; bare if it is answered.

        Other shards may have carried out that entry later: a worker that waits for this one would not hear them.
        """
        last = self._last
        life, applied = last.lives.get(worker, (0, 0)) if last is not None else (0, 0)
        if last is None or life != incarnation:
            return None
        answer = Answer(position=last.position, global_step=last.step)
        if last is self._gathering and worker in last.missing:
            answer.residual.CopyFrom(ResidualRequest(position=last.position, applied=applied))
        return answer

    def gather(self, position: int, step: int, patience: float, ask: Ask, then: Callable[[Kept], None]) -> None:
        """Fetches what all keep back as of this position, and tells `then`; at once where there is nobody to ask.

        Args:
            patience: seconds after which it does without those who have not answered.
        """
        self._stop()
        now = asyncio.get_running_loop().time()
        missing = {worker: incarnation for worker, (incarnation, _) in self._lives.items()}
        gathering = _Gathering(
            position, step, dict(self._lives), then, missing, dict(self._restored), begun=now, until=now + patience
        )
        self._gathering = self._last = gathering
        if missing:
            self._set_timer(gathering)
        for worker, incarnation in list(missing.items()):
            if (answer := self.request(worker, incarnation)) is not None:
                ask(worker, incarnation, answer)
        self._finish_if_complete(gathering)

    def hurry(self, seconds: float) -> None:
        """Waits for nobody longer than that from now on: this shard is about to end."""
        self._deadline = asyncio.get_running_loop().time() + seconds
        if self._gathering is not None:
            self._set_timer(self._gathering)

    def _set_timer(self, gathering: _Gathering) -> None:
        if gathering.timer is not None:
            gathering.timer.cancel()
        until = min(gathering.until, self._deadline)
        gathering.timer = asyncio.get_running_loop().call_at(until, self._expire, gathering)

    def receive(self, header: PushHeader) -> ResidualPart | None:
        """Begins to take what a worker sends; None if nobody waits for it any more, or there is no memory for it.

        Raises:
            InvalidPush: pushes of this job are exact, or the length is not the image's.
        """
        worker, layout, gathering = header.id.worker, self._layout, self._gathering
        if layout is None:
            raise InvalidPush(f"worker {worker} keeps nothing back in this job")
        if header.total_bytes not in (0, layout.total_bytes):
            raise InvalidPush(f"worker {worker} keeps back {header.total_bytes} bytes, not {layout.total_bytes}")
        if (
            gathering is None
            or gathering.position != header.position
            or gathering.missing.get(worker) != header.id.incarnation
        ):
            return None
        size = header.total_bytes
        try:
            buffer = np.empty(size, np.uint8)
        except MemoryError:
            why = f"no memory for {size} bytes"
            event(logger, "residuals_missing", logging.WARNING, workers=worker, why=why)
            self._without(gathering, worker)
            return None
        part = ResidualPart(worker, size, buffer, lambda: self._take(gathering, worker, part))
        gathering.parts[worker] = part
        return part

    def _take(self, gathering: _Gathering, worker: int, part: ResidualPart) -> None:
        if len(part.buffer):
            gathering.kept[worker] = part.buffer
        gathering.missing.pop(worker, None)
        self._finish_if_complete(gathering)

    def _without(self, gathering: _Gathering, worker: int) -> None:
        del gathering.missing[worker]
        if worker in gathering.parts:
            gathering.parts[worker].dropped = True
        self._finish_if_complete(gathering)

    def _expire(self, gathering: _Gathering) -> None:
        waited = asyncio.get_running_loop().time() - gathering.begun
        why = f"no answer within {waited:.2f} s"
        event(logger, "residuals_missing", logging.WARNING, workers=_names(gathering.missing), why=why)
        gathering.missing.clear()
        self._finish_if_complete(gathering)

    def _finish_if_complete(self, gathering: _Gathering) -> None:
        if gathering is self._gathering and not gathering.missing:
            self._stop()
            kept, gathering.kept = gathering.kept, {}
            gathering.then(list(self._pieces(kept)))

    def _pieces(self, kept: Mapping[int, Bytes]) -> Iterator[tuple[Piece, memoryview]]:
        for worker, buffer in sorted(kept.items()):
            for block, offset in zip(self._layout.blocks, self._layout.offsets, strict=True) if self._layout else ():
                piece = Piece(block.parameter, residual_slot(worker), block.start, block.stop, block.dtype)
                yield piece, buffer[offset : offset + block.nbytes].data


def _names(workers: Iterable[int]) -> str:
    return ",".join(map(str, sorted(workers)))
