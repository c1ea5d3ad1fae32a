"""Carries out the log on this shard: the only place where its state changes."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor, Future
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from grpc_ps.client.shared.errors import PeerLost, RolledBack, WrongRun, error_classes
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import job_pb2
from grpc_ps.protos.coordination_pb2 import Reduced
from grpc_ps.psserver.admission import Admission
from grpc_ps.psserver.lead.log import Admit, Answer, Apply, Dismiss, Entry, Open, Pin, PushId, Reduce, Stop, Weighted
from grpc_ps.psserver.messages import answer_message
from grpc_ps.psserver.part import Image
from grpc_ps.psserver.plan import Plan
from grpc_ps.psserver.reader_pins import ReaderPins
from grpc_ps.psserver.sessions import Outgoing, Sessions
from grpc_ps.psserver.snapshot import Snapshot
from grpc_ps.psserver.staging import Key, Staging
from grpc_ps.psserver.updates import Updates

if TYPE_CHECKING:
    from grpc_ps.psserver.store import Store

T = TypeVar("T")
INLINE_BYTES = 1 << 20
"""Updates up to this size run on the event loop: they take less time than handing them to a thread."""

logger = logging.getLogger(__name__)


class Replay:
    """The shard's state, as entry after entry of the log makes it; only the staging is filled by streams.

    Not guarded: used by the event loop alone. Large updates run in `kernels` (one thread); entries behind them wait.

    Attributes:
        delivered: position of the last entry taken; `position` of the last one carried out.
        opened: whether the job is open.
        reduced: the mean that is made and not applied yet.
        admission: the lives of workers that are welcome.
        pins: the snapshots that readers may have.

    Args:
        shard, shard_count: which shard this is.
        chunk_bytes: the largest chunk.
        kernels: where large updates run.
        store_class: what `load_store` returned there, as the first work.
        on_overflow: told the parameter and step of an update whose result is not finite.
        on_reduced: told of each mean that `reduce` asked for. Both are called after the entry, never within `deliver`:
            they lead to further entries.
        on_read: told the name of each snapshot that a reader has had.
        on_failure: told of each error in carrying out an entry, wherever it arises: this shard is useless then, and
            carries out no more than what tells workers that the job is over.
    """

    def __init__(
        self,
        *,
        shard: int,
        shard_count: int,
        chunk_bytes: int,
        kernels: Executor,
        store_class: Future[type[Store]],
        on_overflow: Callable[[str, int], None],
        on_reduced: Callable[[Reduced], None],
        on_read: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
    ) -> None:
        self.shard = shard
        self.shard_count = shard_count
        self.run = 0
        self.generation = 0
        self.delivered = 0
        self.position = 0
        self.opened = False
        self.plan: Plan | None = None
        self.staging = Staging(chunk_bytes)
        self.sessions = Sessions()
        self.admission = Admission()
        self.pins = ReaderPins(on_read)
        self.reduced: Reduced | None = None
        self._mean: Weighted = ()
        self._kernels = kernels
        self._updates = Updates(store_class, chunk_bytes)
        self._snapshot: Snapshot | None = None
        self._on_overflow = on_overflow
        self._on_reduced = on_reduced
        self._on_failure = on_failure
        self._backlog: deque[tuple[int, Entry]] = deque()
        self._busy = False
        self._failed = False
        self._changed = asyncio.Event()

    def expect(self, job: job_pb2.JobSpec) -> None:
        """Names the job that the next `open` opens."""
        self.plan = Plan(job, self.shard, self.shard_count)

    def deliver(self, position: int, entry: Entry) -> None:
        """Carries out the next entry, now or when those before it are. Never raises: see `on_failure`."""
        self.delivered = position
        self._backlog.append((position, entry))
        self._work()

    def _work(self) -> None:
        while self._backlog and not self._busy:
            self.position, entry = self._backlog.popleft()
            if not self._failed or _ends(entry):
                self._guarded(self._carry_out, entry)
        self._changed.set()
        self._changed = asyncio.Event()

    def _guarded(self, work: Callable[..., None], *what: Any) -> None:
        """Does a piece of carrying out an entry. An error of any kind is told: what follows would be built on it."""
        try:
            work(*what)
        except Exception as error:
            self._failed = True
            self._on_failure(error)

    def _carry_out(self, entry: Entry) -> None:
        match entry:
            case Open(push):
                self._open(push)
            case Admit(worker, incarnation):
                self.admission.admit(worker, incarnation)
            case Dismiss():
                self._dismiss(entry)
            case Reduce(pushes):
                self._reduce(pushes)
            case Apply():
                self._apply(entry)
            case Answer():
                self._answer(entry)
            case Pin(snapshot, _, keep_ms):
                self._pin(snapshot, keep_ms / 1000)
            case Stop():
                event(
                    logger, "stopped", global_step=entry.step, exit_code=entry.done.exit_code, reason=entry.done.reason
                )

    def _open(self, push: PushId) -> None:
        image = self._image(push)
        plan = self._opened_plan
        self.opened = True
        self._in_kernels(lambda: self._updates.open(plan, image), lambda snapshot: self._opened(push, snapshot))

    def _opened(self, push: PushId, snapshot: Snapshot) -> None:
        self.staging.forget(_key(push))
        self._snapshot = snapshot
        layout = self._opened_plan.values
        event(logger, "open", blocks=len(layout.blocks), bytes=layout.total_bytes)

    def _reduce(self, pushes: Weighted) -> None:
        images = [self._image(push) for push, _ in pushes]
        position, self._mean = self.position, pushes

        def reduced(sums: list[float]) -> None:
            self.reduced = Reduced(position=position, squares=sums)
            self._later(self._on_reduced, self.reduced)

        self._update(len(images), lambda: self._updates.reduce(images, pushes), reduced)

    def _apply(self, entry: Apply) -> None:
        images = [self._image(push) for push, _ in entry.pushes]
        averaged = self._mean == entry.pushes
        if self._mean and not averaged:
            raise LookupError(f"the update to step {entry.step} is of other pushes than the mean that was made for it")
        self._mean, self.reduced = (), None
        # A buffer that nobody else holds is updated in place instead of copied.
        self._snapshot = None
        self._update(
            len(images),
            lambda: self._updates.apply(images, entry, averaged),
            lambda result: self._applied(entry, *result),
        )

    def _applied(self, entry: Apply, snapshot: Snapshot, non_finite: str) -> None:
        for push, _ in entry.pushes:
            self.staging.forget(_key(push))
        if non_finite:
            self._later(self._on_overflow, non_finite, entry.step)
        else:
            self._snapshot = snapshot

    def _later(self, report: Callable[..., None], *what: Any) -> None:
        """Reports after the entries at hand: what the lead makes of it comes behind them."""
        asyncio.get_running_loop().call_soon(self._guarded, report, *what)

    def _update(self, images: int, work: Callable[[], T], then: Callable[[T], None]) -> None:
        """Runs work on that many images, here or in the thread."""
        if self._opened_plan.gradients.total_bytes * images <= INLINE_BYTES:
            then(work())
        else:
            self._in_kernels(work, then)

    def _answer(self, entry: Answer) -> None:
        if entry.result is not None:
            self.staging.forget((entry.worker, entry.incarnation, entry.result.sequence))
        session = self.sessions.get(entry.worker, entry.incarnation)
        if session is None or (entry.release is not None and self._snapshot is None):
            return
        snapshot = self._snapshot.share() if entry.release is not None and self._snapshot else None
        size = snapshot.total_bytes if snapshot else 0
        answer = answer_message(entry, generation=self.generation, position=self.position, total_bytes=size)
        session.send(Outgoing(answer, snapshot))

    def _dismiss(self, entry: Dismiss) -> None:
        self.admission.dismiss(entry.worker, entry.incarnation)
        self.staging.dismiss(entry.worker, entry.incarnation, entry.keep)
        session = self.sessions.get(entry.worker, entry.incarnation)
        if session is not None:
            session.close(error_classes()[entry.reason](entry.detail) if entry.reason else None)

    def _pin(self, name: int, keep: float) -> None:
        if self._snapshot is not None:
            self.pins.add(name, self._snapshot, keep)

    def _in_kernels(self, work: Callable[[], T], then: Callable[[T], None]) -> None:
        future = asyncio.get_running_loop().run_in_executor(self._kernels, work)
        self._busy = True
        future.add_done_callback(partial(self._resume, then))

    def _resume(self, then: Callable[[T], None], future: asyncio.Future[T]) -> None:
        self._busy = False
        if future.cancelled():
            return
        self._guarded(lambda: then(future.result()))
        self._work()

    @property
    def _opened_plan(self) -> Plan:
        if self.plan is None:
            raise LookupError("the log goes on without a job")
        return self.plan

    def _image(self, push: PushId) -> Image:
        part = self.staging.whole(_key(push))
        if part is None:
            raise LookupError(f"push {push} is named by the log and not here")
        return part.image

    def check(self, identity: job_pb2.Identity) -> None:
        """Refuses what belongs to another job or generation.

        Raises:
            WrongRun, RolledBack
        """
        self.check_run(identity)
        if identity.generation != self.generation:
            raise RolledBack("the lead is in another generation: join again")

    def check_run(self, identity: job_pb2.Identity) -> None:
        """Refuses at once what can never be admitted: it is of another job. A follower knows its job from the link.

        Raises:
            WrongRun
        """
        if self.run and identity.run != self.run:
            raise WrongRun("that job is gone and another one runs here: start the worker anew")

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Waits until entries have made `condition` true; PeerLost after `seconds`."""

        async def met() -> None:
            while not condition():
                await self._changed.wait()

        try:
            await asyncio.wait_for(met(), seconds)
        except asyncio.TimeoutError:
            raise PeerLost(f"{what} did not happen within {seconds:g} s") from None


def _key(push: PushId) -> Key:
    return push.worker, push.incarnation, push.sequence


def _ends(entry: Entry) -> bool:
    """Whether an entry only tells somebody of an end: of the job, or of a worker's part in it."""
    return isinstance(entry, Dismiss | Stop) or (isinstance(entry, Answer) and entry.done is not None)
