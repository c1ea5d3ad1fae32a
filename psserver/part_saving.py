"""Writes this shard's part of a checkpoint beside what follows in the log."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Executor
from functools import partial

from grpc_ps.protos.coordination_pb2 import Saved
from grpc_ps.protos.parameter_server_pb2 import Answer
from grpc_ps.psserver.backlog import Backlog
from grpc_ps.psserver.checkpoint import BlockState, CheckpointFiles, not_finite
from grpc_ps.psserver.lead.log import Save
from grpc_ps.psserver.residuals import Kept, Residuals
from grpc_ps.psserver.sessions import Outgoing, Sessions
from grpc_ps.psserver.table_memory import TableView


class PartSaver:
    """One part at a time. Not guarded: used by the event loop alone; the files are written in `savers`.

    Attributes:
        saved: the newest part, or why it could not be written; None in a generation that has saved nothing.

    Args:
        files: the checkpoints; None without a folder for them.
        savers: where they are written, one thread.
        on_saved: told of each part, after the entry at hand.
    """

    def __init__(
        self, files: CheckpointFiles | None, savers: Executor, backlog: Backlog, on_saved: Callable[[Saved], None]
    ) -> None:
        self.saved: Saved | None = None
        self._files = files
        self._savers = savers
        self._backlog = backlog
        self._on_saved = on_saved

    def clear(self, *, waited: bool) -> None:
        """Another generation begins; `waited` says that a part was not begun to be written, and never will be."""
        self.saved = None
        if waited and self._files is not None:
            self._files.writing = False

    def refuse(self, entry: Save, non_finite: str) -> bool:
        """Reports why the position cannot be saved, if it cannot; `non_finite` names a parameter."""
        files = self._files
        if files is None:
            self._report(Saved(folder=entry.folder, error="this shard has no --checkpoint-dir"))
        elif files.writing:
            # Each part that waited would keep all values and slots of its position.
            self._report(Saved(folder=entry.folder, error="an earlier part is still being written"))
        elif non_finite:
            self._report(not_finite(entry.folder, entry.step, non_finite))
        else:
            return False
        return True

    def save(
        self,
        entry: Save,
        state: list[BlockState],
        tables: list[TableView],
        residuals: Residuals,
        sessions: Sessions,
    ) -> None:
        """Has the state written, with what workers keep back as of this position."""
        files = self._files
        if files is None:
            return
        files.begin()

        def ask(worker: int, incarnation: int, answer: Answer) -> None:
            session = sessions.get(worker, incarnation)
            if session is not None:
                session.send(Outgoing(answer, None))

        def write(kept: Kept) -> None:
            work = partial(files.write, entry.folder, entry.step, state, tables, kept)
            self._backlog.beside(self._savers, work, self._report)

        residuals.gather(self._backlog.position, entry.step, entry.patience_ms / 1000, ask, write)

    def _report(self, report: Saved) -> None:
        self.saved = report
        self._backlog.later(self._on_saved, report)
