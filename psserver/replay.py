"""Carries out the log on this shard: the only place where its state changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor, Future
from typing import TYPE_CHECKING

from grpc_ps.client.shared.errors import CheckpointError, RolledBack, error_classes
from grpc_ps.client.shared.image import Bytes
from grpc_ps.client.shared.logs import event
from grpc_ps.protos import job_pb2
from grpc_ps.protos import parameter_server_pb2 as wire
from grpc_ps.protos.coordination_pb2 import Reduced, Saved
from grpc_ps.psserver.admission import Admission
from grpc_ps.psserver.backlog import Backlog
from grpc_ps.psserver.checkpoint import CheckpointFiles
from grpc_ps.psserver.identity import JobIdentity
from grpc_ps.psserver.lead.log import Admit, Answer, Apply, Dismiss, Entry, Open, Pin, Reduce, Save, Stop
from grpc_ps.psserver.messages import answer_message, shard_times
from grpc_ps.psserver.part_saving import PartSaver
from grpc_ps.psserver.plan import Plan
from grpc_ps.psserver.reader_pins import Pinned, ReaderPins
from grpc_ps.psserver.residuals import Residuals
from grpc_ps.psserver.round_updates import RoundUpdates
from grpc_ps.psserver.sessions import Outgoing, Sessions
from grpc_ps.psserver.snapshot import Outbound, Snapshot
from grpc_ps.psserver.staging import Staging, key_of_id
from grpc_ps.psserver.table_memory import TableMemory
from grpc_ps.psserver.updates import Updates

if TYPE_CHECKING:
    from grpc_ps.psserver.store import Store

logger = logging.getLogger(__name__)


class Replay:
    """The shard's state, as entry after entry of the log makes it; only the staging is filled by streams.

    Not guarded: used by the event loop alone. Large updates run in `kernels`; entries behind them wait (`Backlog`).

    Attributes:
        identity: the job that it is of.
        opened: whether the job is open.
        residuals: what workers keep back of their pushes; `saver` writes parts of checkpoints.
        admission: the lives of workers that are welcome.
        pins: the snapshots that readers may have.
        times: where this shard's time went.

    Args:
        shard, shard_count: which shard this is.
        chunk_bytes: the largest chunk.
        patience: seconds that whoever calls this shard waits for the log, and is waited for.
        kernels: where large updates run, one thread.
        savers: where checkpoints are written, one thread.
        files: the checkpoints; None without a folder for them.
        store_class: what `load_store` returned there, as the first work.
        on_overflow: told the parameter and step of an update whose result is not finite.
        on_reduced: told of each mean that `reduce` asked for.
        on_saved: told of each part of a checkpoint. All three are called after the entry, never within `deliver`:
            they lead to further entries.
        on_read: told the name of each snapshot that a reader has had.
        on_failure: told of each error in carrying out an entry, wherever it arises: this shard is useless then, and
            carries out no more than what tells workers that the job is over.
        at: called at the points where `--fault` may kill the process.
    """

    def __init__(
        self,
        *,
        shard: int,
        shard_count: int,
        chunk_bytes: int,
        patience: float = 10.0,
        kernels: Executor,
        savers: Executor,
        files: CheckpointFiles | None,
        store_class: Future[type[Store]],
        on_overflow: Callable[[str, int], None],
        on_reduced: Callable[[Reduced], None],
        on_saved: Callable[[Saved], None],
        on_read: Callable[[int], None],
        on_failure: Callable[[BaseException], None],
        at: Callable[[str], None] = lambda point: None,
    ) -> None:
        self.shard = shard
        self.shard_count = shard_count
        self.identity = JobIdentity()
        self.sessions = Sessions()
        self.patience = patience
        self.at = at
        self.times = shard_times()
        self.chunk_bytes = chunk_bytes
        self._store_class = store_class
        self._files = files
        self._on_overflow = on_overflow
        self._on_reduced = on_reduced
        self._on_read = on_read
        self._backlog = Backlog(lambda entry: self._carry_out(entry), kernels, on_failure)
        self.residuals = Residuals()
        self.saver = PartSaver(files, savers, self._backlog, on_saved)
        self.begin(0, 0)

    def begin(self, run: int, generation: int) -> None:
        """Follows the log of another generation, from its first entry on: all that was before is dropped."""
        self.identity.run, self.identity.generation = run, generation
        self.sessions.close_all(RolledBack("the job goes back to a checkpoint: join again"))
        self.opened = False
        self.plan: Plan | None = None
        self.staging = Staging(self.chunk_bytes)
        self.admission = Admission()
        self.pins = ReaderPins(self._on_read)
        self.saver.clear(waited=self.residuals.clear())
        self._updates = Updates(self._store_class, self.chunk_bytes)
        self._rounds = RoundUpdates(
            self._updates,
            self.staging,
            self.residuals,
            self._backlog,
            self.times,
            at=self.at,
            on_reduced=self._on_reduced,
            on_overflow=self._on_overflow,
        )
        self._backlog.clear()

    def expect(self, job: job_pb2.JobSpec) -> None:
        """Names the job that the next `open` opens."""
        self.plan = Plan(job, self.shard, self.shard_count)

    def deliver(self, position: int, entry: Entry) -> None:
        """Carries out the next entry, now or when those before it are. Never raises: see `on_failure`."""
        self._backlog.deliver(position, entry)

    @property
    def reduced(self) -> Reduced | None:
        """The mean that is made and not applied yet."""
        return self._rounds.reduced

    @property
    def tables(self) -> Sequence[TableMemory]:
        """This shard's rows of each table."""
        return self._updates.tables

    @property
    def has_values(self) -> bool:
        """Whether the job's values are here: some time after the entry that opens it."""
        return self._rounds.snapshot is not None

    @property
    def delivered(self) -> int:
        """Position of the last entry taken."""
        return self._backlog.delivered

    @property
    def position(self) -> int:
        """Position of the last entry carried out."""
        return self._backlog.position

    def _carry_out(self, entry: Entry) -> None:
        match entry:
            case Open():
                self._open(entry)
            case Admit(worker, incarnation):
                self.admission.admit(worker, incarnation)
                self.residuals.admit(worker, incarnation)
            case Dismiss():
                self._dismiss(entry)
            case Reduce(pushes):
                self._rounds.reduce(pushes)
            case Apply():
                self._rounds.apply(entry)
            case Answer():
                self._answer(entry)
            case Pin():
                self._pin(entry)
            case Save():
                self._save(entry)
            case Stop():
                event(
                    logger, "stopped", global_step=entry.step, exit_code=entry.done.exit_code, reason=entry.done.reason
                )

    def _open(self, entry: Open) -> None:
        plan, push = self._opened_plan, entry.push
        self.opened = True
        if push is not None:
            image = self.staging.image(push)
            self._backlog.in_kernels(lambda: self._updates.open(plan, image), lambda first: self._opened(entry, first))
            return
        if self._files is None:
            raise CheckpointError("the job goes on from a checkpoint, and this shard has no --checkpoint-dir")
        files, opened = self._files, lambda restored: self._opened(entry, *restored)
        self._backlog.in_kernels(lambda: self._updates.restore(plan, files, entry.checkpoint, entry.step), opened)

    def _opened(self, entry: Open, snapshot: Snapshot, residuals: Mapping[int, Bytes] | None = None) -> None:
        plan, opening = self._opened_plan, None if entry.push is None else key_of_id(entry.push)
        layout = plan.residuals if plan.push.lossy else None
        self.residuals.open(layout, residuals or {}, opening, places=plan.places)
        if opening is not None:
            self.staging.forget(opening)
        self._rounds.snapshot = snapshot
        origin = entry.checkpoint or "initial values"
        event(
            logger, "open", blocks=len(plan.blocks), bytes=plan.values.total_bytes, state=origin, global_step=entry.step
        )

    def _save(self, entry: Save) -> None:
        """Has this position written beside what follows."""
        self.residuals.saving(entry.step)
        if not self.saver.refuse(entry, self._rounds.non_finite):
            state, tables = self._updates.state(), self._updates.views(slots=True)
            self.saver.save(entry, state, tables, self.residuals, self.sessions)

    def _answer(self, entry: Answer) -> None:
        if entry.result is not None:
            key = entry.worker, entry.incarnation, entry.result.sequence
            self.staging.forget(key)
            if entry.result.outcome != "APPLIED":
                self.residuals.decided(*key, applied=False)
        session = self.sessions.get(entry.worker, entry.incarnation)
        if session is None or (entry.release is not None and self._rounds.snapshot is None):
            return
        sent: Outbound | None = None
        if entry.release is not None and self._rounds.snapshot is not None:
            sent = release = self._rounds.snapshot.release.share()
            if session.wants(entry.release.batch):
                sent = self._updates.with_rows(release, session.wanted)
        session.send(Outgoing(self._answer_message(entry, sent), sent))

    def _answer_message(self, entry: Answer, snapshot: Outbound | None) -> wire.Answer:
        size, rows = (snapshot.total_bytes, snapshot.rows) if snapshot else (0, ())
        generation, position = self.identity.generation, self.position
        return answer_message(entry, generation=generation, position=position, total_bytes=size, rows=rows)

    def _dismiss(self, entry: Dismiss) -> None:
        self.admission.dismiss(entry.worker, entry.incarnation)
        self.staging.dismiss(entry.worker, entry.incarnation, entry.keep)
        self.residuals.dismiss(entry.worker, entry.incarnation)
        session = self.sessions.get(entry.worker, entry.incarnation)
        if session is not None:
            session.close(error_classes()[entry.reason](entry.detail) if entry.reason else None)

    def _pin(self, entry: Pin) -> None:
        if self._rounds.snapshot is not None:
            pinned = Pinned(self._updates.pinned(entry, self._rounds.snapshot), self._updates.views())
            self.pins.add(entry.snapshot, pinned, entry.keep_ms / 1000)

    @property
    def _opened_plan(self) -> Plan:
        if self.plan is None:
            raise LookupError("the log goes on without a job")
        return self.plan

    async def until(self, condition: Callable[[], bool], seconds: float, what: str) -> None:
        """Waits until entries have made `condition` true; PeerLost after `seconds`."""
        await self._backlog.until(condition, seconds, what)
